// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net"
	"testing"
)

// TestAskLine: a dropped datagram is sent again.
func TestAskLine(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		buffer := make([]byte, 100)
		for n := 1; ; n++ {
			read, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			if n == 1 {
				continue // as if it had been dropped
			}
			server.WriteTo(buffer[:read], from)
		}
	}()
	c, err := net.Dial("udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, line := range []string{"first", "second"} {
		if answer, err := AskLine(c, line); err != nil || answer != line {
			t.Errorf("%q is answered by %q, %v", line, answer, err)
		}
	}
}
