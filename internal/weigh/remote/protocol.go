// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"io"
	"net/netip"
	"time"
)

// The calls of a worker, as package net/rpc has them; all fields are plain data.

// service is the name that a worker's methods are registered under.
const service = "Worker"

// BeginArgs are the first thing that a worker is told.
type BeginArgs struct {
	Name      string
	Interface string
	IPv4      netip.Addr
	// Build is that of the bench; a worker of another one refuses.
	Build string
}

// BeginReply describes the machine.
type BeginReply struct {
	Interface string
	Prefix    netip.Prefix // the address with the segment's length
	MAC       []byte
	PATH      string
}

// CallArgs have a task performed: see lab.Perform.
type CallArgs struct {
	Task string
	Args []byte
}

// StartArgs are a lab.Command.
type StartArgs struct {
	Path     string
	Args     []string
	Env      []string
	Dir      string
	CPUs     []int
	Session  bool
	Out, Err bool // whether what it says is wanted
}

// StartReply names a process that was started.
type StartReply struct{ ID, PID int }

// ReadReply has a process's output since the last time, and its end.
type ReadReply struct {
	Out, Err []byte
	Ended    bool
	// Failed says how the process ended, if badly.
	Failed string
}

// SignalArgs send a signal to a process, not to its group.
type SignalArgs struct{ ID, Number int }

// None is an argument or result without content.
type None struct{}

// Bounds of the connection.
const (
	// pingInterval is how often the bench shows that it lives, silence how long a
	// worker waits for that.
	pingInterval = 10 * time.Second
	silence      = time.Minute
	// maxUnread bounds the part of a process's output that is kept until it is read.
	maxUnread = 1 << 20
)

// pipe is a connection made of two streams.
type pipe struct {
	io.Reader
	io.Writer
	close func() error
}

func (p pipe) Close() error { return p.close() }
