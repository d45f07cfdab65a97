// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// New returns an exchange, which Run runs.
func New(options Options) (*Exchange, error) {
	config, err := identity(options.Keys...)
	if err != nil {
		return nil, err
	}
	return &Exchange{options: options.withDefaults(), tls: config, authenticated: map[net.Conn]tls.ConnectionState{},
		senders: map[string]*sender{}, received: map[string]*ReceiverStatus{},
		conns: map[net.Conn]struct{}{}, receivers: map[*receiver]struct{}{}, bases: map[lb.ServiceKey]sentBase{},
		progress: make(chan struct{}, 1), joined: make(chan struct{}), flushWaiters: make(chan chan struct{}),
		requestEarly: make(chan struct{}, 1)}, nil
}

// Run exchanges flows until the context ends.
func (e *Exchange) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, e.close)
	group.Go(func() { e.acceptLoop(ctx, &group) })
	group.Go(func() { e.scanLoop(ctx) })
	group.Go(func() { e.awaitJoined(ctx) })
	for {
		changed := e.options.Group.Changed()
		e.reconcileSenders(ctx, &group)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// close ends all connections.
func (e *Exchange) close() {
	e.options.Listener.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	for conn := range e.conns {
		conn.Close()
	}
}

// reconcileSenders starts a sender for each peer, and ends those of others.
func (e *Exchange) reconcileSenders(ctx context.Context, group *sync.WaitGroup) {
	e.mu.Lock()
	defer e.mu.Unlock()
	present := map[string]bool{}
	for _, peer := range e.options.Group.Peers() {
		present[peer.Name] = true
		if s := e.senders[peer.Name]; s != nil {
			if s.peer == peer {
				s.reconnectNow()
				continue
			}
			s.cancel()
		}
		own, cancel := context.WithCancel(ctx)
		s := newSender(e, peer, cancel)
		e.senders[peer.Name] = s
		group.Go(func() { s.run(own) })
	}
	for name, s := range e.senders {
		if !present[name] {
			s.cancel()
			delete(e.senders, name)
			// A peer that was only stalled may not know that it was taken for failed: when it is a peer again, it sends
			// over its old connection, whose state is removed when it ends (peerDisconnected).
			if h := e.received[name]; h != nil && !h.Connected {
				delete(e.received, name)
			}
		}
	}
	for conn := range e.conns {
		if !e.options.IsPeer(addressOf(conn.RemoteAddr())) {
			conn.Close() // the other end is no longer a peer
		}
	}
}

// Joined returns a channel that is closed once there is a peer and each reached peer has sent all its flows, or after
// JoinTimeout. Before that, this balancer would break others' connections.
func (e *Exchange) Joined() <-chan struct{} { return e.joined }

// awaitJoined closes the channel of Joined when its condition holds.
func (e *Exchange) awaitJoined(ctx context.Context) {
	defer close(e.joined)
	expired := time.After(e.options.JoinTimeout)
	for !e.hasAllFlows() {
		select {
		case <-ctx.Done():
			return
		case <-expired:
			return
		case <-e.progress:
		}
	}
}

func (e *Exchange) hasAllFlows() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name := range e.senders {
		if h := e.received[name]; h == nil || !h.Complete {
			return false
		}
	}
	return len(e.senders) > 0
}

func (e *Exchange) notifyProgress() {
	signal(e.progress)
}

// scanLoop scans for changed flows, and hands them to all senders.
func (e *Exchange) scanLoop(ctx context.Context) {
	timer := time.NewTimer(e.options.ScanInterval)
	defer timer.Stop()
	var earlyUntil time.Time // until then each scan covers all flows
	for {
		var flush chan struct{}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case flush = <-e.flushWaiters:
			earlyUntil = later(earlyUntil, time.Now().Add(earlyScanTime))
		case <-e.requestEarly:
			earlyUntil = later(earlyUntil, time.Now().Add(earlyTime))
		}
		now, sendChanges := time.Now(), e.scanOnce
		early := now.Before(earlyUntil)
		if early {
			sendChanges = e.sendAllFlows
		}
		if err := sendChanges(now); err != nil {
			e.options.Log.Debug("reading flows for other members", "error", err)
		}
		if flush != nil {
			close(flush)
		}
		if err := e.requestMissed(); err != nil {
			e.options.Log.Debug("asking other members for flows again", "error", err)
		}
		took := time.Since(now)
		timer.Reset(max(0, e.scanPause(early, took)-took))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// scanOnce sends bases first: a peer accepts a flow only if it knows that the flow's slot has moved.
func (e *Exchange) scanOnce(now time.Time) error {
	if err := e.sendBases(now, e.options.ScanPeriod); err != nil {
		return err
	}
	places := int64(e.options.DataPlane.FlowPlaces())
	return e.sendFlows(int(places*int64(e.options.ScanInterval)/int64(e.options.ScanPeriod)) + 1)
}
