// SPDX-License-Identifier: Apache-2.0

package transact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/epoll"
)

// multiStream is a client with several streams: one thread, which handles the events of sockets.
type multiStream struct {
	Options
	loop    *epoll.Loop
	address unix.Sockaddr
	family  int
	// streams has the streams by descriptor; closed ones are nil.
	streams []*stream
	open    int
	report  *Report
	began   time.Time
	buffer  [16]byte
}

// stream is a slot for an outstanding transaction.
type stream struct {
	fd   int
	step step
	// at is when the transaction began.
	at time.Time
}

// step is the event that a stream waits for.
type step uint8

const (
	connecting step = iota
	answering
	closing
)

func (o Options) runMany(ctx context.Context) (*Report, error) {
	m := &multiStream{Options: o, report: &Report{Latency: load.NewLatency()}}
	m.address, m.family = epoll.Address(o.Target)
	var err error
	if m.loop, err = epoll.New(); err != nil {
		return nil, err
	}
	defer m.loop.Close()
	defer m.loop.WakeAtEnd(ctx)()
	defer m.close()
	if err := m.begin(); err != nil {
		return nil, err
	}
	if err := m.transact(ctx); err != nil {
		return nil, err
	}
	return m.report, nil
}

// begin opens all streams. The connections of TCP_RR are open before the first request, as netperf's are.
func (m *multiStream) begin() error {
	if m.Test == RR {
		alone := &singleStream{Options: m.Options, address: m.address, family: m.family}
		for range m.Connections {
			fd, err := alone.connect()
			if err != nil {
				return fmt.Errorf("connecting to %v: %w", m.Target, err)
			}
			if err := errors.Join(unix.SetNonblock(fd, true),
				m.watch(&stream{fd: fd, step: answering}, unix.EPOLLIN)); err != nil {
				return err
			}
		}
	}
	m.began = time.Now()
	if m.Test == RR {
		for _, s := range m.streams {
			if s != nil {
				m.send(s)
			}
		}
		return nil
	}
	for range m.Connections {
		m.connect(&stream{})
	}
	return nil
}

func (m *multiStream) watch(s *stream, events uint32) error {
	if s.fd >= len(m.streams) {
		m.streams = append(m.streams, make([]*stream, s.fd+1-len(m.streams))...)
	}
	m.streams[s.fd] = s
	m.open++
	return m.loop.Add(s.fd, events)
}

// checkInterval is the interval of checks for streams without an answer.
const checkInterval = 100 * time.Millisecond

// transact handles the events of sockets until the time is over and no transaction is outstanding.
func (m *multiStream) transact(ctx context.Context) error {
	next := checkInterval
	if err := m.loop.After(next); err != nil {
		return err
	}
	for m.open > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := m.loop.Wait(m.handle); err != nil {
			return err
		}
		if now := time.Since(m.began); now >= next {
			m.giveUp()
			next = now + checkInterval
			if err := m.loop.After(checkInterval); err != nil {
				return err
			}
		}
	}
	elapsed := time.Since(m.began)
	m.report.Seconds = min(elapsed, m.Duration).Seconds()
	m.report.Drained = max(elapsed-m.Duration, 0).Seconds()
	return nil
}

// over reports whether the time is over.
func (m *multiStream) over() bool { return time.Since(m.began) >= m.Duration }

// giveUp fails streams that have been silent for too long.
func (m *multiStream) giveUp() {
	for _, s := range m.streams {
		if s != nil && time.Since(s.at) > timeout {
			m.fail(s, errSilent)
		}
	}
}

// handle handles the events of a stream. Sockets of TCP_CRR report each change once (EPOLLET), so handle must process
// everything that follows from it.
func (m *multiStream) handle(fd int, events uint32) {
	s := m.streams[fd]
	if s == nil {
		return // it was closed by an event before this one
	}
	if s.step == connecting {
		open, err := epoll.Opened(fd, events)
		if err != nil {
			m.fail(s, err)
		}
		if !open {
			return
		}
		s.step = answering
		if !m.send(s) {
			return
		}
	}
	if events&^unix.EPOLLOUT != 0 {
		m.read(s)
	}
}

// send sends a request; false means that the stream failed.
func (m *multiStream) send(s *stream) bool {
	if s.step == answering && m.Test == RR {
		s.at = time.Now()
	}
	// A byte always fits, unless the connection is broken.
	if _, err := epoll.Send(s.fd, m.buffer[:1]); err != nil {
		m.fail(s, err)
		return false
	}
	return true
}

func (m *multiStream) read(s *stream) {
	for {
		n, err := epoll.Receive(s.fd, m.buffer[:], 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil:
			m.fail(s, err)
			return
		case n == 0 && s.step == closing:
			m.ended(s)
			return
		case n == 0:
			m.fail(s, epoll.ErrEarly)
			return
		case n > 1 || s.step == closing:
			m.fail(s, errMore)
			return
		case m.Test == RR:
			m.ended(s)
			return
		}
		s.step = closing
	}
}

// ended counts a transaction and begins the next.
func (m *multiStream) ended(s *stream) {
	if m.Test == CRR {
		m.forget(s)
	}
	if m.over() {
		if m.Test == RR {
			m.forget(s)
		}
		return
	}
	m.report.ended(time.Since(s.at))
	if m.Test == RR {
		m.send(s)
		return
	}
	m.connect(s)
}

// connect begins a transaction of TCP_CRR in a stream whose previous transaction has ended.
func (m *multiStream) connect(s *stream) {
	s.at, s.step = time.Now(), connecting
	var err error
	if s.fd, err = epoll.Socket(m.family, unix.SOCK_NONBLOCK); err != nil {
		m.report.Fail(err)
		return
	}
	err = unix.Connect(s.fd, m.address)
	if err == nil || errors.Is(err, unix.EINPROGRESS) {
		err = m.watch(s, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET)
	}
	if err != nil {
		unix.Close(s.fd)
		m.report.Fail(err)
	}
}

// fail counts a failed transaction. Its stream gets no further transaction: otherwise a server that refuses connections
// would get requests without end.
func (m *multiStream) fail(s *stream, err error) {
	m.report.Fail(err)
	m.forget(s)
}

func (m *multiStream) forget(s *stream) {
	m.streams[s.fd] = nil
	m.open--
	epoll.Close(s.fd)
}

func (m *multiStream) close() {
	for _, s := range m.streams {
		if s != nil {
			unix.Close(s.fd)
		}
	}
}
