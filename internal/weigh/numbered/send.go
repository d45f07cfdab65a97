// SPDX-License-Identifier: Apache-2.0

package numbered

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// payload is a datagram's bytes: number and mark.
	payload = 16
	// burst is the number of datagrams that a call to the kernel sends, as one that the kernel cuts into pieces
	// (UDP_SEGMENT): as many as every kernel allows, and far fewer than any queue on the path holds.
	burst = 64
	// tick is the interval at which due datagrams are sent.
	tick = time.Millisecond
	// maxLate bounds the datagrams that are made up for when the sender did not get the processor. Datagrams due
	// earlier are left out, because all of them at once would not fit the queues.
	maxLate = 50 * time.Millisecond
)

// moment is the time when the numbers from one on were sent.
type moment struct {
	first uint64
	at    time.Time
}

// Send sends the stream from the calling thread's network namespace until ctx ends, which is
// no error, or all numbers are sent (ErrUsedUp).
func (s *Stream) Send(ctx context.Context) error {
	flows := make([]*net.UDPConn, s.options.Flows)
	defer func() {
		for _, f := range flows {
			if f != nil {
				f.Close()
			}
		}
	}()
	for i := range flows {
		var err error
		if flows[i], err = openFlow(s.options); err != nil {
			return err
		}
	}
	timer, err := newTimer()
	if err != nil {
		return err
	}
	defer unix.Close(timer)
	pace := pace{rate: s.options.Rate, last: time.Now()}
	for turn := 0; ctx.Err() == nil; {
		if err := waitFor(timer); err != nil {
			return err
		}
		now := time.Now()
		bursts := pace.due(now)
		s.note(now, bursts)
		for range bursts {
			if err := s.sendBurst(flows[turn%len(flows)]); err != nil {
				return err
			}
			turn++
		}
	}
	return nil
}

// newTimer makes a kernel timer that expires each tick. It wakes the calling thread itself, while Go's timers are run
// by threads that get the CPU later than a sender that has priority.
func newTimer() (int, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	if err == nil {
		each := unix.NsecToTimespec(tick.Nanoseconds())
		if err = unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: each, Value: each}, nil); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("setting the timer of a numbered stream: %w", err)
	}
	return fd, nil
}

// waitFor waits until the timer expires.
func waitFor(timer int) error {
	var expired [8]byte
	if _, err := unix.Read(timer, expired[:]); err != nil && err != unix.EINTR {
		return fmt.Errorf("waiting for the timer of a numbered stream: %w", err)
	}
	return nil
}

// openFlow opens a socket whose writes are cut into datagrams.
func openFlow(o Options) (*net.UDPConn, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(o.Target))
	if err != nil {
		return nil, fmt.Errorf("opening a flow of numbered datagrams: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		controlled := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, payload)
		})
		err = errors.Join(controlled, err)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("having the kernel cut numbered datagrams (UDP_SEGMENT): %w", err)
	}
	return conn, nil
}

// pace counts the datagrams that are due.
type pace struct {
	rate int
	last time.Time
	// owed is the number of datagrams that are due beyond whole bursts.
	owed float64
}

// due returns the number of bursts to send now.
func (p *pace) due(now time.Time) int {
	p.owed += min(now.Sub(p.last), maxLate).Seconds() * float64(p.rate)
	p.last = now
	bursts := int(p.owed / burst)
	p.owed -= float64(bursts * burst)
	return bursts
}

// note records when the next numbers are sent.
func (s *Stream) note(now time.Time, bursts int) {
	if bursts == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moments = append(s.moments, moment{first: s.sent.Load(), at: now})
}

// sendBurst sends the next numbers by a flow. An answer that the port is closed, because no balancer takes its packets,
// is no error: the next write succeeds.
func (s *Stream) sendBurst(flow *net.UDPConn) error {
	first := s.sent.Load()
	if first+burst > maxNumbers {
		return ErrUsedUp
	}
	var data [burst * payload]byte
	for i := range burst {
		binary.NativeEndian.PutUint64(data[i*payload:], first+uint64(i))
		binary.NativeEndian.PutUint64(data[i*payload+8:], s.mark)
	}
	for {
		_, err := flow.Write(data[:])
		switch {
		case err == nil:
			s.sent.Store(first + burst)
			return nil
		case !errors.Is(err, unix.ECONNREFUSED):
			return fmt.Errorf("sending numbered datagrams: %w", err)
		}
	}
}
