// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

const (
	// firstPause and longestPause are between two attempts to connect. A connection or an unanswered attempt that
	// lasted longer than the pause is followed by firstPause again.
	firstPause, longestPause = 200 * time.Millisecond, 2 * time.Second
	// writeTimeout is how long a peer may take nothing.
	writeTimeout = 10 * time.Second
	// writeAtOnce is how many bytes a peer has that time for.
	writeAtOnce = 64 << 10
	// snapshotPlaces is how many places are looked at, at a time, while a peer is sent all flows.
	snapshotPlaces = 16384
)

func newSender(e *Exchange, peer lb.Peer, cancel context.CancelFunc) *sender {
	return &sender{exchange: e, peer: peer, cancel: cancel, more: make(chan struct{}, 1), back: make(chan struct{}, 1),
		told: Told{Peer: peer}}
}

// enqueue has messages wait for a peer that is connected: one that is not will be sent all flows.
func (s *sender) enqueue(messages []byte, flows uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.told.Connected || s.whole {
		return
	}
	if len(s.queue)+len(messages) > s.exchange.options.Queue {
		s.queue, s.queuedFlows, s.whole = nil, 0, true
		s.told.Overflows++
	} else {
		s.queue, s.queuedFlows = append(s.queue, messages...), s.queuedFlows+flows
	}
	signal(s.more)
}

// signal wakes the receiver of a channel, which buffers one value; it does not wait for that.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// wake has a sender that waits connect now: its peer is seen to be there, as another process may be long before the
// wait is over.
func (s *sender) wake() {
	signal(s.back)
}

// run connects again and again.
func (s *sender) run(ctx context.Context) {
	first := s.exchange.options.retry
	pause := first
	for ctx.Err() == nil {
		begun := time.Now()
		err := s.connect(ctx)
		s.mu.Lock()
		s.told.Connected, s.told.Failed, s.queue, s.queuedFlows = false, err, nil, 0
		s.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		s.exchange.options.Log.Debug("a member cannot be told of flows", "member", s.peer.Name, "address",
			s.peer.Address, "error", err)
		if pause = min(2*pause, max(longestPause, first)); time.Since(begun) > longestPause {
			pause = first
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-s.back:
			pause = first
		}
	}
}

// connect sends the peer all flows, and then changes, until the connection ends.
func (s *sender) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dialer := net.Dialer{Timeout: dialTimeout, LocalAddr: s.exchange.local()}
	raw, err := dialer.DialContext(ctx, "tcp", s.peer.Address.String())
	if err != nil {
		return err
	}
	defer raw.Close()
	defer s.exchange.forget(raw)
	if err := endSilence(raw); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { raw.Close() })
	conn := tls.Client(raw, s.exchange.identity())
	name, err := s.exchange.shake(conn)
	if err != nil {
		return fmt.Errorf("connecting to the member %s at %s: %w", s.peer.Name, s.peer.Address, err)
	}
	if name != s.peer.Name {
		return fmt.Errorf("connecting to the member %s at %s: there is %q", s.peer.Name, s.peer.Address, name)
	}
	s.mu.Lock()
	s.told = Told{Peer: s.peer, Connected: true, Wholes: s.told.Wholes, Overflows: s.told.Overflows}
	s.whole, s.telling, s.queue, s.queuedFlows = true, false, nil, 0
	s.mu.Unlock()
	go func() {
		defer cancel()
		s.hear(conn)
	}()
	return s.send(ctx, conn)
}

// send sends the queue until the connection ends.
func (s *sender) send(ctx context.Context, conn net.Conn) error {
	for {
		s.mu.Lock()
		messages, flows, whole := s.queue, s.queuedFlows, s.whole
		s.queue, s.queuedFlows, s.whole, s.telling = nil, 0, false, whole
		s.told.Flows += flows
		s.mu.Unlock()
		var err error
		if whole {
			err = s.sendAll(ctx, conn)
		} else if len(messages) > 0 {
			err = s.write(conn, messages, 0)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("the connection has ended")
		case <-s.more:
		}
	}
}

// sendAll sends the peer all flows. Changes meanwhile are queued.
func (s *sender) sendAll(ctx context.Context, conn net.Conn) error {
	bases, err := s.exchange.options.DataPlane.Bases()
	if err != nil {
		return err
	}
	for i := range bases {
		body, err := encodeBase(&bases[i])
		if err == nil {
			err = s.write(conn, body, 0)
		}
		if err != nil {
			return err
		}
	}
	begun, sent := time.Now(), uint64(0)
	walk := s.exchange.options.DataPlane.SnapshotFlows()
	for done := false; !done; {
		var b batch
		if done, err = walk.Next(snapshotPlaces, func(f *lb.Flow) { b.add(f) }); err != nil {
			return err
		}
		if err := s.write(conn, b.messages(), b.flows); err != nil {
			return err
		}
		sent += b.flows
		due := time.Duration(float64(sent) / float64(s.exchange.options.SnapshotRate) * float64(time.Second))
		select {
		case <-ctx.Done():
			return errors.New("the connection has ended")
		case <-time.After(due - time.Since(begun)):
		}
	}
	s.mu.Lock()
	s.told.Wholes++
	s.telling = false
	s.mu.Unlock()
	return s.write(conn, message(nil, kindWhole, nil), 0)
}

func (s *sender) write(conn net.Conn, messages []byte, flows uint64) error {
	if len(messages) == 0 {
		return nil
	}
	s.mu.Lock()
	s.told.Flows += flows
	s.told.Bytes += uint64(len(messages))
	s.mu.Unlock()
	// A peer may be slow, but take something.
	for part := range slices.Chunk(messages, writeAtOnce) {
		if err := conn.SetWriteDeadline(time.Now().Add(s.exchange.options.stalled)); err != nil {
			return err
		}
		if _, err := conn.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// local is where connections are opened from: the address that peers know this member by.
func (e *Exchange) local() net.Addr {
	if at, is := e.options.Listener.Addr().(*net.TCPAddr); is && !at.IP.IsUnspecified() {
		return &net.TCPAddr{IP: at.IP, Zone: at.Zone}
	}
	return nil
}

// hear takes the peer's answers: how far it has come, and that it is to be sent all flows again, or new ones early.
func (s *sender) hear(conn net.Conn) {
	for {
		k, body, err := readMessage(conn)
		switch {
		case err == nil && k == kindTaken && len(body) == 8:
			s.mu.Lock()
			s.told.looked = binary.BigEndian.Uint64(body)
			s.mu.Unlock()
		case err == nil && k == kindAgain:
			s.mu.Lock()
			s.queue, s.queuedFlows, s.whole = nil, 0, true
			s.mu.Unlock()
			signal(s.more)
		case err == nil && k == kindRequestEarly:
			signal(s.exchange.requestEarly)
		default:
			return
		}
	}
}

// status returns the state of sending to the peer.
func (s *sender) status() Told {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.told
	t.Behind = s.waiting()
	return t
}

// waiting is how many flows wait or were sent, and have not been looked at; the caller holds the lock.
func (s *sender) waiting() uint64 {
	return s.queuedFlows + s.told.Flows - min(s.told.looked, s.told.Flows)
}

// behind says whether a peer that is connected has yet to be sent flows, or to take them.
func (s *sender) behind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told.Connected && (s.whole || s.telling || s.waiting() > 0)
}
