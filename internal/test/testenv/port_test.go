// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPort: a reserved port refuses connections, no other test reserves it, and a server can listen on it repeatedly.
func TestPort(t *testing.T) {
	port := Port(t)
	if err := reserve(t, int(port)); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("reserving port %d once more: %v, want %v", port, err, unix.EADDRINUSE)
	}
	at := fmt.Sprintf("127.0.0.1:%d", port)
	for range 3 {
		if c, err := net.Dial("tcp", at); err == nil {
			c.Close()
			t.Errorf("something listens on the reserved port %d", port)
		}
		for _, listening := range []string{at, fmt.Sprintf(":%d", port)} {
			listener, err := net.Listen("tcp", listening)
			if err != nil {
				t.Fatal(err)
			}
			packets, err := net.ListenPacket("udp", listening)
			if err != nil {
				t.Fatal(err)
			}
			c, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			packets.Close()
			listener.Close()
		}
	}
}
