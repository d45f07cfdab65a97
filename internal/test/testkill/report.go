// SPDX-License-Identifier: Apache-2.0

package testkill

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/unotify"
)

// envName is set in the environment of a victim. Its socket is the first file after the standard ones.
const (
	envName    = "JEOUL_TEST_KILL"
	socketFile = 3
)

// IsVictim reports whether this process is a victim.
func IsVictim() bool { return os.Getenv(envName) != "" }

// Report makes the kernel halt this process at each step. Call it in a victim before anything else.
func Report() error { return unotify.Install(filter(), socketFile) }

// Begin starts the count of steps when the test says so.
func Begin() error {
	if _, err := unix.Write(socketFile, []byte{0}); err != nil {
		return err
	}
	_, err := unix.Read(socketFile, make([]byte, 1))
	return err
}

func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(pair[0]), "victim")
	defer file.Close()
	theirs = os.NewFile(uintptr(pair[1]), "test")
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, nil, fmt.Errorf("opening a socket: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}
