// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// AskLine sends a line, and returns the line that comes back. A datagram may be dropped on a busy machine: AskLine
// sends it again each second until one is answered.
func AskLine(c net.Conn, line string) (string, error) {
	if c.LocalAddr().Network() != "udp" {
		return askOnce(c, line, WaitLimit)
	}
	passOver(c)
	for deadline := time.Now().Add(WaitLimit); ; {
		answer, err := askOnce(c, line, time.Second)
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(deadline) {
			return answer, err
		}
	}
}

func askOnce(c net.Conn, line string, bound time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(bound)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(answer), err
}

// passOver reads late answers, to datagrams that were sent again.
func passOver(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	for buffer := make([]byte, 1024); ; {
		if _, err := c.Read(buffer); err != nil {
			return
		}
	}
}
