// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"io"
	"os"
)

// ErrRemote means that only a host in a namespace of this machine supports the request.
var ErrRemote = errors.New("not possible on another machine")

// Machine is a host that is no namespace of this machine. Package remote reaches it through a worker there, which is a
// jeoul of the same build.
type Machine interface {
	// Call performs a task there; args and the result are JSON.
	Call(ctx context.Context, task string, args []byte) ([]byte, error)
	// Start runs a command there. An *os.File as output receives only what is written to it, like any other writer.
	Start(ctx context.Context, c Command) (RemoteProcess, error)
}

// RemoteProcess is a process on another machine; its methods are those of Process.
type RemoteProcess interface {
	PID() int
	Done() <-chan struct{}
	Wait() error
	Signal(number int) error
	Stop(ctx context.Context) error
}

// Command is a program to be run on a host.
type Command struct {
	// Path is a file, or a name to be looked up in PATH.
	Path string
	Args []string
	// Env is the whole environment; nil takes the caller's.
	Env []string
	// Dir is the working directory; empty is the host's Dir.
	Dir string
	// Stdin is passed to the process itself. If it is a terminal, the process's group becomes the foreground, and the
	// caller becomes it again when the process has ended. nil: no input. Only for namespaces of this machine.
	Stdin *os.File
	// Stdout and Stderr receive the output; nil discards it. An *os.File is passed to the process itself.
	Stdout, Stderr io.Writer
	// CPUs pins the process and its children; nil leaves them free.
	CPUs []int
	// Session makes the process lead its own session, as a daemon that a machine's init has started does. A kernel that
	// groups processes by session (sched_autogroup_enabled) divides a busy core between the groups first, so programs
	// that are compared must be grouped alike. Without Session, the process is in the caller's session. It cannot be
	// used with a terminal as Stdin.
	Session bool
}
