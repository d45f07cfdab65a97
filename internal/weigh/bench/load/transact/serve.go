// SPDX-License-Identifier: Apache-2.0

package transact

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/bench/load/epoll"
)

// Server answers every byte with one byte.
type Server struct {
	// Closing is the address at which a connection is closed after the first answer (TCP_CRR), Keeping the one at which
	// it is kept (TCP_RR).
	Closing, Keeping netip.AddrPort
}

// server is a running Server. It reads a single connection by blocking calls. If that connection ends after one answer,
// a blocking call also waits for the next connection, as in netserver: another call of epoll would take a tenth of a
// transaction.
type server struct {
	loop                    *epoll.Loop
	crrListener, rrListener int
	// acceptBlocks means that accepting at crrListener blocks.
	acceptBlocks bool
	// conns has the connections by descriptor, open is the number of open ones, and last the descriptor of the newest
	// one.
	conns  []serverConn
	open   int
	last   int
	buffer [512]byte
}

// serverConn is a connection of a server.
type serverConn struct {
	open bool
	// once means that the connection is closed after the first answer.
	once bool
	// watched means that the loop watches the connection.
	watched bool
}

// Bounds of the time in which a single connection, or one after another, keeps others waiting.
const (
	// aloneSilence is how long the connection may be silent.
	aloneSilence = 5 * time.Millisecond
	// aloneAnswers is the maximum number of answers in a row.
	aloneAnswers = 64
)

// Serve answers requests on the calling thread until ctx ends.
func (s Server) Serve(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it makes no garbage
	if runtime.GOMAXPROCS(0) < 2 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // as a client
	}
	r := &server{crrListener: -1, rrListener: -1}
	defer r.close()
	var err error
	if r.loop, err = epoll.New(); err != nil {
		return err
	}
	defer r.loop.WakeAtEnd(ctx)()
	for at, into := range map[netip.AddrPort]*int{s.Closing: &r.crrListener, s.Keeping: &r.rrListener} {
		if *into, err = r.listen(at); err != nil {
			return fmt.Errorf("listening at %v: %w", at, err)
		}
	}
	for ctx.Err() == nil {
		next := r.loop.Wait
		busy, err := r.serveSingle()
		if err != nil {
			return err
		}
		if busy {
			next = r.loop.Look
		}
		if err := next(r.handle); err != nil {
			return err
		}
	}
	return nil
}

// listen opens a listener. Its connections inherit the limit on how long a read may block.
func (r *server) listen(at netip.AddrPort) (int, error) {
	fd, err := epoll.Listen(at)
	if err != nil {
		return -1, err
	}
	limit := unix.NsecToTimeval(aloneSilence.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return fd, err
	}
	return fd, r.loop.Add(fd, unix.EPOLLIN)
}

// serveSingle serves, for a while, a client that is the only one. It answers the only connection, and accepts the next
// one if that connection was for one answer. busy is false if there is no such client, or if it is silent.
func (r *server) serveSingle() (busy bool, err error) {
	defer func() { err = errors.Join(err, r.wait(false)) }()
	for range aloneAnswers {
		if r.open != 1 {
			return false, nil
		}
		once := r.conns[r.last].once
		switch {
		case r.answer(r.last, 0):
		case r.open == 1:
			r.watch(r.last)
			return false, nil
		case !once:
			return false, nil
		default:
			if err := r.wait(true); err != nil {
				return false, err
			}
			fd, err := epoll.Accept(r.crrListener)
			if err != nil {
				return false, nil // no client came: the loop reports the next one
			}
			r.add(fd, true)
		}
	}
	return true, nil
}

// wait sets whether accepting at crrListener blocks, for at most aloneSilence.
func (r *server) wait(waits bool) error {
	if r.acceptBlocks == waits {
		return nil
	}
	r.acceptBlocks = waits
	return unix.SetNonblock(r.crrListener, !waits)
}

func (r *server) handle(fd int, _ uint32) {
	switch {
	case fd == r.crrListener || fd == r.rrListener:
		r.accept(fd)
	case r.conns[fd].open:
		r.answer(fd, unix.MSG_DONTWAIT)
	}
}

// accept accepts all waiting connections.
func (r *server) accept(listener int) {
	for {
		fd, err := epoll.Accept(listener)
		if errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // EAGAIN, or no free descriptor: waiting connections continue to wait
		}
		before := r.last
		if r.add(fd, listener == r.crrListener); r.open == 1 {
			return // if there are others, the loop reports them
		}
		r.watch(before)
		// Often the request has arrived already.
		r.answer(fd, unix.MSG_DONTWAIT)
		r.watch(fd)
	}
}

// add stores a new connection and makes it the last one.
func (r *server) add(fd int, once bool) {
	if fd >= len(r.conns) {
		r.conns = append(r.conns, make([]serverConn, fd+1-len(r.conns))...)
	}
	r.conns[fd] = serverConn{open: true, once: once}
	r.open++
	r.last = fd
}

// watch makes the loop watch a connection.
func (r *server) watch(fd int) {
	c := &r.conns[fd]
	if !c.open || c.watched {
		return
	}
	if c.watched = true; r.loop.Add(fd, unix.EPOLLIN|unix.EPOLLRDHUP) != nil {
		r.forget(fd)
	}
}

// answer answers the received bytes. It returns false if there were none, or if the connection is closed.
func (r *server) answer(fd, flags int) bool {
	n, err := epoll.Receive(fd, r.buffer[:], flags)
	for errors.Is(err, unix.EINTR) {
		n, err = epoll.Receive(fd, r.buffer[:], flags)
	}
	if errors.Is(err, unix.EAGAIN) {
		return false
	}
	if err == nil && n > 0 {
		// So few bytes always fit, unless the connection is broken.
		if _, err = epoll.Send(fd, r.buffer[:n]); err == nil && !r.conns[fd].once {
			return true
		}
	}
	r.forget(fd)
	return false
}

// forget closes a connection. If only one other connection is left, that one becomes the last.
func (r *server) forget(fd int) {
	r.conns[fd] = serverConn{}
	r.open--
	epoll.Close(fd)
	if r.open == 1 && !r.conns[r.last].open {
		for other := range r.conns {
			if r.conns[other].open {
				r.last = other
			}
		}
	}
}

func (r *server) close() {
	for fd, c := range r.conns {
		if c.open {
			unix.Close(fd)
		}
	}
	for _, fd := range []int{r.crrListener, r.rrListener} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if r.loop != nil {
		r.loop.Close()
	}
}
