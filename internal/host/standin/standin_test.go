// SPDX-License-Identifier: Apache-2.0

package standin_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/standin"
)

// answer makes a listener send a word to each client.
func answer(t *testing.T, l net.Listener, err error, word string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, word)
			conn.Close()
		}
	}()
}

// readWord returns the word of the listener at a path.
func readWord(t *testing.T, path string) string {
	t.Helper()
	conn, err := standin.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	word, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return word
}

// TestStandIn: the stand-in answers if the socket has no file, or if a dead process has left one. If a process listens
// on the file, that one answers. With neither, the error is about the file.
func TestStandIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	if _, err := standin.Dial(t.Context(), path); !errors.Is(err, unix.ENOENT) {
		t.Errorf("without a socket: %v", err)
	}
	l, err := standin.Listen(t.Context(), path)
	answer(t, l, err, "name")
	if got := readWord(t, path); got != "name\n" {
		t.Errorf("without a file, %q answers", got)
	}
	if _, err := standin.Listen(t.Context(), path); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a second one: %v", err)
	}
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	if got := readWord(t, path); got != "name\n" {
		t.Errorf("with the file of a dead process, %q answers", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, err = net.Listen("unix", path)
	answer(t, l, err, "file")
	if got := readWord(t, path); got != "file\n" {
		t.Errorf("with a file, %q answers", got)
	}
}
