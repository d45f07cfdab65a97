// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"io"
	"net/netip"
	"time"
)

// The calls of a worker, in the form of package net/rpc; all fields are plain data.

// service is the name under which a worker's methods are registered.
const service = "Worker"

// BeginArgs are the arguments of the first call to a worker.
type BeginArgs struct {
	Name      string
	Interface string
	IPv4      netip.Addr
	// Build is the bench's build; a worker of another build refuses.
	Build string
}

// BeginReply describes the machine.
type BeginReply struct {
	Interface string
	Prefix    netip.Prefix // the address with the segment's length
	MAC       []byte
	PATH      string
}

// CallArgs name a task to perform: see lab.Perform.
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
	Out, Err bool // whether its output is wanted
}

// StartReply identifies a process that was started.
type StartReply struct{ ID, PID int }

// ReadReply holds a process's output since the last call, and its end.
type ReadReply struct {
	Out, Err []byte
	Ended    bool
	// Failed describes the end of the process, if it failed.
	Failed string
}

// SignalArgs name a signal to send to a process, not to its group.
type SignalArgs struct{ ID, Number int }

// None is an argument or result without content.
type None struct{}

// Bounds of the connection.
const (
	// pingInterval is the interval at which the bench shows that it is alive, silence how long a worker waits for that.
	pingInterval = 10 * time.Second
	silence      = time.Minute
	// maxUnread bounds the part of a process's output that is kept until it is read.
	maxUnread = 1 << 20
)

// pipe is a connection over two streams.
type pipe struct {
	io.Reader
	io.Writer
	close func() error
}

func (p pipe) Close() error { return p.close() }
