// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"container/heap"
	"context"
	"errors"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// connector makes the checks that only open a connection. Most of such a check's cost is the kernel's: socket, connect
// and close. A goroutine, a timer and a place of its own in the runtime's poller nearly doubled that. Here all of them
// share an epoll of their own, which is one file to the runtime, and one timer; connections that are established at
// once, as in the host's own network, needs neither.
type connector struct {
	ctx  context.Context
	file *os.File // the epoll
	raw  rawConn
	fd   int

	mu      sync.Mutex
	ended   bool
	pending map[int32]*connecting
	due     deadlines
	armed   time.Time // the file's deadline
}

// connecting is a connection that is being opened.
type connecting struct {
	fd       int
	to       unix.Sockaddr
	check    *lb.Check
	done     func(health.Answer)
	deadline time.Time
	place    int // in deadlines
}

func newConnector(ctx context.Context) (*connector, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or the runtime would not wait for it
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	n := &connector{ctx: ctx, file: os.NewFile(uintptr(fd), "epoll"), fd: fd, pending: map[int32]*connecting{}}
	if n.raw, err = n.file.SyscallConn(); err != nil {
		n.file.Close()
		return nil, err
	}
	context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.file.SetReadDeadline(time.Unix(1, 0))
	})
	go n.run()
	return n, nil
}

// start opens a connection, which may take so long.
func (n *connector) start(to netip.AddrPort, check *lb.Check, within time.Duration, done func(health.Answer)) {
	fd, err := socket("tcp", check.Source, to)
	if err != nil {
		done(trouble(err))
		return
	}
	c := &connecting{fd: fd, to: sockaddr(to), check: check, done: done}
	switch err = unix.Connect(fd, c.to); {
	case errors.Is(err, unix.EINPROGRESS):
		if over, err := c.look(); over {
			c.end(err)
			return
		}
		c.deadline = time.Now().Add(within)
		if err := n.await(c); err != nil {
			c.end(own{err})
		}
	case err == nil, errors.Is(err, unix.ECONNREFUSED): // which is the endpoint's, on this host
		c.end(err)
	default:
		c.end(own{os.NewSyscallError("connect", err)})
	}
}

// look reports whether the connection is established or has failed, and the error. To connect once more is one system
// call, where to poll and to read the socket's error are two (connect(2)).
func (c *connecting) look() (over bool, err error) { return connectAgain(c.fd, c.to) }

// end closes the connection, with a FIN, and hands on the result.
func (c *connecting) end(err error) {
	unix.Close(c.fd)
	if err != nil {
		c.done((&ask{check: c.check}).answerOf(err))
		return
	}
	c.done(health.Pass("connected"))
}

// await has run end a connection.
func (n *connector) await(c *connecting) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		return n.ctx.Err()
	}
	// A connection that was established before this gives an event, too.
	event := unix.EpollEvent{Events: unix.EPOLLOUT | unix.EPOLLET, Fd: int32(c.fd)}
	if err := unix.EpollCtl(n.fd, unix.EPOLL_CTL_ADD, c.fd, &event); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	n.pending[int32(c.fd)] = c
	heap.Push(&n.due, c)
	n.arm()
	return nil
}

// arm has run look when the next deadline passes. n.mu is held.
func (n *connector) arm() {
	if len(n.due) == 0 || n.ctx.Err() != nil {
		return
	}
	if next := n.due[0].deadline; n.armed.IsZero() || next.Before(n.armed) {
		n.armed = next
		n.file.SetReadDeadline(next)
	}
}

// run ends connections when they are there, or when their time has passed, until the context ends.
func (n *connector) run() {
	events := make([]unix.EpollEvent, 256)
	for n.ctx.Err() == nil {
		var got int
		// Once the deadline has passed, Read returns an error, and overdue takes the connections that are there all the
		// same.
		n.raw.Read(func(fd uintptr) bool {
			got, _ = unix.EpollWait(int(fd), events, 0)
			return got > 0
		})
		for _, e := range events[:max(got, 0)] {
			c := n.find(e.Fd)
			if c == nil {
				continue
			}
			if over, err := c.look(); over {
				n.remove(c)
				c.end(err)
			}
		}
		for _, c := range n.overdue(time.Now()) {
			over, err := c.look()
			if !over {
				err = os.ErrDeadlineExceeded
			}
			c.end(err)
		}
	}
	for _, c := range n.leave() {
		c.end(own{n.ctx.Err()})
	}
	n.file.Close()
}

// find returns the connection that is opened by a socket.
func (n *connector) find(fd int32) *connecting {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pending[fd]
}

// remove takes a connection out. Its socket must still be open, or another has its number.
func (n *connector) remove(c *connecting) {
	n.mu.Lock()
	defer n.mu.Unlock()
	heap.Remove(&n.due, c.place)
	delete(n.pending, int32(c.fd))
}

// overdue takes those out whose time has passed, and arms the next deadline.
func (n *connector) overdue(now time.Time) []*connecting {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []*connecting
	for len(n.due) > 0 && !n.due[0].deadline.After(now) {
		c := heap.Pop(&n.due).(*connecting)
		delete(n.pending, int32(c.fd))
		list = append(list, c)
	}
	if !n.armed.IsZero() && !n.armed.After(now) {
		n.armed = time.Time{}
		if len(n.due) == 0 && n.ctx.Err() == nil {
			n.file.SetReadDeadline(time.Time{})
		}
		n.arm()
	}
	return list
}

// leave takes out the connections that are left when the run ends.
func (n *connector) leave() []*connecting {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	list := []*connecting(n.due)
	n.due, n.pending = nil, nil
	return list
}

// deadlines are connections by their deadlines, the next one first (container/heap).
type deadlines []*connecting

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].deadline.Before(d[j].deadline) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}
func (d *deadlines) Push(x any) {
	c := x.(*connecting)
	c.place = len(*d)
	*d = append(*d, c)
}
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	c := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return c
}
