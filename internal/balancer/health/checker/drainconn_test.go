// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDrainConn: after the deadline, what has come is read all the same, byte by byte, and then the end.
func TestDrainConn(t *testing.T) {
	next := make(chan struct{})
	to := serve(t, "127.0.0.1:0", func(c net.Conn) {
		<-next
		io.WriteString(c, "ab")
	})
	raw, err := net.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn, b := patient(raw), make([]byte, 1)
	if err := conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("before anything has come: %d bytes, %v", n, err)
	}
	close(next)
	for _, want := range []string{"a", "b", ""} {
		awaitReadable(t, raw.(*net.TCPConn))
		n, err := conn.Read(b)
		if got := string(b[:n]); got != want || (err == io.EOF) != (want == "") {
			t.Errorf("read %q, %v; want %q", got, err, want)
		}
	}
}

// awaitReadable waits until there are bytes to read, or the end of the stream.
func awaitReadable(t *testing.T, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		for err = unix.EINTR; err == unix.EINTR; {
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patiently.Milliseconds()))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
