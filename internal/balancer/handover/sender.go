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
	// minBackoff and maxBackoff are the least and the longest pause between two attempts to connect. A connection
	// or an unanswered attempt that lasted longer than the pause is followed by minBackoff again.
	minBackoff, maxBackoff = 200 * time.Millisecond, 2 * time.Second
	// writeTimeout is how long a peer may read nothing.
	writeTimeout = 10 * time.Second
	// maxWriteBytes bounds the bytes of one write, for each of which a peer has that time.
	maxWriteBytes = 64 << 10
	// snapshotBatch is the number of places per step while all flows are sent to a peer.
	snapshotBatch = 16384
)

func newSender(e *Exchange, peer lb.Peer, cancel context.CancelFunc) *sender {
	return &sender{exchange: e, peer: peer, cancel: cancel, more: make(chan struct{}, 1), reconnect: make(chan struct{},
		1),
		state: SenderStatus{Peer: peer}}
}

// enqueue queues messages for a connected peer: a peer that is not will be sent all flows.
func (s *sender) enqueue(messages []byte, flows uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.state.Connected || s.fullSync {
		return
	}
	if len(s.queue)+len(messages) > s.exchange.options.Queue {
		s.queue, s.queuedFlows, s.fullSync = nil, 0, true
		s.state.Overflows++
	} else {
		s.queue, s.queuedFlows = append(s.queue, messages...), s.queuedFlows+flows
	}
	signal(s.more)
}

// signal puts a value into a channel that buffers one, unless it has one.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// reconnectNow ends the sender's backoff, because its peer was seen, perhaps as another process.
func (s *sender) reconnectNow() {
	signal(s.reconnect)
}

// run connects again and again.
func (s *sender) run(ctx context.Context) {
	first := s.exchange.options.minBackoff
	pause := first
	for ctx.Err() == nil {
		begun := time.Now()
		err := s.connect(ctx)
		s.mu.Lock()
		s.state.Connected, s.state.Failed, s.queue, s.queuedFlows = false, err, nil, 0
		s.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		s.exchange.options.Log.Debug("cannot send flows to a member", "member", s.peer.Name, "address",
			s.peer.Address, "error", err)
		if pause = min(2*pause, max(maxBackoff, first)); time.Since(begun) > maxBackoff {
			pause = first
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-s.reconnect:
			pause = first
		}
	}
}

// connect sends the peer all flows, and then changes, until the connection ends.
func (s *sender) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dialer := net.Dialer{Timeout: dialTimeout, LocalAddr: s.exchange.localAddress()}
	raw, err := dialer.DialContext(ctx, "tcp", s.peer.Address.String())
	if err != nil {
		return err
	}
	defer raw.Close()
	defer s.exchange.forgetConn(raw)
	if err := setTimeouts(raw); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { raw.Close() })
	conn := tls.Client(raw, s.exchange.identity())
	name, err := s.exchange.handshake(conn)
	if err != nil {
		return fmt.Errorf("connecting to the member %s at %s: %w", s.peer.Name, s.peer.Address, err)
	}
	if name != s.peer.Name {
		return fmt.Errorf("connecting to the member %s at %s: there is %q", s.peer.Name, s.peer.Address, name)
	}
	s.mu.Lock()
	s.state = SenderStatus{Peer: s.peer, Connected: true, FullSyncs: s.state.FullSyncs, Overflows: s.state.Overflows}
	s.fullSync, s.syncing, s.queue, s.queuedFlows = true, false, nil, 0
	s.mu.Unlock()
	go func() {
		defer cancel()
		s.handleAnswers(conn)
	}()
	return s.send(ctx, conn)
}

// send sends the queue until the connection ends.
func (s *sender) send(ctx context.Context, conn net.Conn) error {
	for {
		s.mu.Lock()
		messages, flows, whole := s.queue, s.queuedFlows, s.fullSync
		s.queue, s.queuedFlows, s.fullSync, s.syncing = nil, 0, false, whole
		s.state.Flows += flows
		s.mu.Unlock()
		var err error
		if whole {
			err = s.sendSnapshot(ctx, conn)
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

// sendSnapshot sends the peer all flows. Changes meanwhile are queued.
func (s *sender) sendSnapshot(ctx context.Context, conn net.Conn) error {
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
		if done, err = walk.Next(snapshotBatch, func(f *lb.Flow) { b.add(f) }); err != nil {
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
	s.state.FullSyncs++
	s.syncing = false
	s.mu.Unlock()
	return s.write(conn, appendMessage(nil, kindAllSent, nil), 0)
}

func (s *sender) write(conn net.Conn, messages []byte, flows uint64) error {
	if len(messages) == 0 {
		return nil
	}
	s.mu.Lock()
	s.state.Flows += flows
	s.state.Bytes += uint64(len(messages))
	s.mu.Unlock()
	// A slow peer must read each part within the timeout.
	for part := range slices.Chunk(messages, maxWriteBytes) {
		if err := conn.SetWriteDeadline(time.Now().Add(s.exchange.options.stallTimeout)); err != nil {
			return err
		}
		if _, err := conn.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// localAddress returns the source address of connections, which identifies this member to peers.
func (e *Exchange) localAddress() net.Addr {
	if at, is := e.options.Listener.Addr().(*net.TCPAddr); is && !at.IP.IsUnspecified() {
		return &net.TCPAddr{IP: at.IP, Zone: at.Zone}
	}
	return nil
}

// handleAnswers handles the peer's answers: acknowledgements, and requests for all flows or for early ones.
func (s *sender) handleAnswers(conn net.Conn) {
	for {
		k, body, err := readMessage(conn)
		switch {
		case err == nil && k == kindAck && len(body) == 8:
			s.mu.Lock()
			s.state.acked = binary.BigEndian.Uint64(body)
			s.mu.Unlock()
		case err == nil && k == kindResend:
			s.mu.Lock()
			s.queue, s.queuedFlows, s.fullSync = nil, 0, true
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
func (s *sender) status() SenderStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.state
	t.Behind = s.unacknowledged()
	return t
}

// unacknowledged returns the number of flows that are queued or sent, and not acknowledged; the caller holds the lock.
func (s *sender) unacknowledged() uint64 {
	return s.queuedFlows + s.state.Flows - min(s.state.acked, s.state.Flows)
}

// isBehind reports whether a connected peer has flows to be sent or acknowledged.
func (s *sender) isBehind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Connected && (s.fullSync || s.syncing || s.unacknowledged() > 0)
}
