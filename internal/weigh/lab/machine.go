// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"io"
	"os"
)

// ErrFar means that only a host in a namespace of this machine can do what was asked for.
var ErrFar = errors.New("not possible on another machine")

// Machine is a host that is no namespace of this machine. Package remote reaches
// one through a worker there, which is a jeoul of the same build.
type Machine interface {
	// Call has a task performed there; args and what it returns are JSON.
	Call(ctx context.Context, task string, args []byte) ([]byte, error)
	// Start runs a command there. Of an *os.File as output, too, only what is
	// written to it counts.
	Start(ctx context.Context, c Command) (FarProcess, error)
}

// FarProcess is a process on another machine; its methods are as those of Process.
type FarProcess interface {
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
	// Stdin is given to the process itself; of a terminal, its group becomes the foreground, and the
	// caller takes that back when it has ended. nil: no input. Of namespaces of this machine only.
	Stdin *os.File
	// Stdout and Stderr receive the output; nil discards it. An *os.File is
	// given to the process itself.
	Stdout, Stderr io.Writer
	// CPUs pins the process and its children; nil leaves them free.
	CPUs []int
	// Session has the process lead a session of its own, as a daemon that a machine's init has started does. A kernel
	// that groups processes by session (sched_autogroup_enabled) shares a busy core out between groups first, so
	// that what is compared must be in groups alike; without, the process is in the caller's. Not with a terminal
	// as Stdin.
	Session bool
}
