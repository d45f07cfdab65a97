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

// Server answers every byte with one.
type Server struct {
	// Closing is where a connection is closed behind the first answer (TCP_CRR),
	// Keeping where it is kept (TCP_RR).
	Closing, Keeping netip.AddrPort
}

// server is a Server at work. A connection that is the only one is read by blocking
// calls, and where it was for one answer, the next is waited for by one, too, as
// netserver does it: to ask epoll as well would be a tenth of a transaction.
type server struct {
	loop             *epoll.Loop
	closing, keeping int
	// waits: accepting at closing blocks.
	waits bool
	// conns are the connections by descriptor, open is their number, and last the descriptor of the newest one.
	conns  []served
	open   int
	last   int
	buffer [512]byte
}

// served is a connection of a server.
type served struct {
	open bool
	// once: the connection is closed behind the first answer.
	once bool
	// watched: the loop tells of it.
	watched bool
}

// The bounds within which an only connection, or one after the other, keeps others
// waiting.
const (
	// aloneSilence is how long a connection may be silent.
	aloneSilence = 5 * time.Millisecond
	// aloneAnswers is how many answers there are in a row.
	aloneAnswers = 64
)

// Serve answers on the calling thread until ctx ends.
func (s Server) Serve(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it makes no garbage
	if runtime.GOMAXPROCS(0) < 2 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // as a client
	}
	r := &server{closing: -1, keeping: -1}
	defer r.close()
	var err error
	if r.loop, err = epoll.New(); err != nil {
		return err
	}
	defer r.loop.WakeAtEnd(ctx)()
	for at, into := range map[netip.AddrPort]*int{s.Closing: &r.closing, s.Keeping: &r.keeping} {
		if *into, err = r.listen(at); err != nil {
			return fmt.Errorf("listening at %v: %w", at, err)
		}
	}
	for ctx.Err() == nil {
		next := r.loop.Wait
		busy, err := r.alone()
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

// listen opens a port. Its connections take over how long a read may block.
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

// alone serves a client that has the server for itself, for a while: it answers the
// only connection, and accepts the next where that was for one answer. It is not busy
// where there is no such client, or it is silent.
func (r *server) alone() (busy bool, err error) {
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
			fd, err := epoll.Accept(r.closing)
			if err != nil {
				return false, nil // no client came: the loop tells when one does
			}
			r.add(fd, true)
		}
	}
	return true, nil
}

// wait has accepting at closing block, for at most aloneSilence, or not.
func (r *server) wait(waits bool) error {
	if r.waits == waits {
		return nil
	}
	r.waits = waits
	return unix.SetNonblock(r.closing, !waits)
}

func (r *server) handle(fd int, _ uint32) {
	switch {
	case fd == r.closing || fd == r.keeping:
		r.accept(fd)
	case r.conns[fd].open:
		r.answer(fd, unix.MSG_DONTWAIT)
	}
}

// accept takes the connections that wait.
func (r *server) accept(listener int) {
	for {
		fd, err := epoll.Accept(listener)
		if errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // EAGAIN, or no descriptor: those that wait go on waiting
		}
		before := r.last
		if r.add(fd, listener == r.closing); r.open == 1 {
			return // if there are others, the loop tells again
		}
		r.watch(before)
		// The request often is there already.
		r.answer(fd, unix.MSG_DONTWAIT)
		r.watch(fd)
	}
}

// add enters a connection, the last.
func (r *server) add(fd int, once bool) {
	if fd >= len(r.conns) {
		r.conns = append(r.conns, make([]served, fd+1-len(r.conns))...)
	}
	r.conns[fd] = served{open: true, once: once}
	r.open++
	r.last = fd
}

// watch has the loop tell of a connection.
func (r *server) watch(fd int) {
	c := &r.conns[fd]
	if !c.open || c.watched {
		return
	}
	if c.watched = true; r.loop.Add(fd, unix.EPOLLIN|unix.EPOLLRDHUP) != nil {
		r.forget(fd)
	}
}

// answer answers the bytes that have come. False says that there was nothing, or that the connection is closed.
func (r *server) answer(fd, flags int) bool {
	n, err := epoll.Receive(fd, r.buffer[:], flags)
	for errors.Is(err, unix.EINTR) {
		n, err = epoll.Receive(fd, r.buffer[:], flags)
	}
	if errors.Is(err, unix.EAGAIN) {
		return false
	}
	if err == nil && n > 0 {
		// So little always fits, or the connection is broken.
		if _, err = epoll.Send(fd, r.buffer[:n]); err == nil && !r.conns[fd].once {
			return true
		}
	}
	r.forget(fd)
	return false
}

// forget closes a connection. If one other is left, that is the only one from now on.
func (r *server) forget(fd int) {
	r.conns[fd] = served{}
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
	for _, fd := range []int{r.closing, r.keeping} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if r.loop != nil {
		r.loop.Close()
	}
}
