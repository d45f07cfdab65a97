// SPDX-License-Identifier: Apache-2.0

package transact

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/bench/load/epoll"
)

// Server answers every byte with one.
type Server struct {
	// Closing is where a connection is closed behind the first answer (TCP_CRR),
	// Keeping where it is kept (TCP_RR).
	Closing, Keeping netip.AddrPort
}

// server is a Server at work.
type server struct {
	loop             *epoll.Loop
	closing, keeping int
	// once are the connections to close behind their answer, by descriptor, open
	// those that are.
	once, open []bool
	buffer     [512]byte
}

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
		if *into, err = epoll.Listen(at); err == nil {
			err = r.loop.Add(*into, unix.EPOLLIN)
		}
		if err != nil {
			return fmt.Errorf("listening at %v: %w", at, err)
		}
	}
	for ctx.Err() == nil {
		if err := r.loop.Wait(r.handle); err != nil {
			return err
		}
	}
	return nil
}

func (r *server) handle(fd int, _ uint32) {
	switch {
	case fd == r.closing || fd == r.keeping:
		r.accept(fd)
	case r.open[fd]:
		r.answer(fd)
	}
}

// accept takes all connections that wait. The request often is there already.
func (r *server) accept(listener int) {
	for {
		fd, err := epoll.Accept(listener)
		if errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // EAGAIN, or no descriptor: those that wait go on waiting
		}
		if fd >= len(r.once) {
			more := fd + 1 - len(r.once)
			r.once, r.open = append(r.once, make([]bool, more)...), append(r.open, make([]bool, more)...)
		}
		r.once[fd], r.open[fd] = listener == r.closing, true
		if r.answer(fd) && r.loop.Add(fd, unix.EPOLLIN|unix.EPOLLRDHUP) != nil {
			r.forget(fd)
		}
	}
}

// answer answers what there is; false says that the connection is closed.
func (r *server) answer(fd int) bool {
	n, err := unix.Read(fd, r.buffer[:])
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return true
	}
	if err == nil && n > 0 {
		// So little always fits, or the connection is broken.
		if _, err = unix.Write(fd, r.buffer[:n]); err == nil && !r.once[fd] {
			return true
		}
	}
	r.forget(fd)
	return false
}

func (r *server) forget(fd int) {
	r.open[fd] = false
	unix.Close(fd)
}

func (r *server) close() {
	for fd, open := range r.open {
		if open {
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
