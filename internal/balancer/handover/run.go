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

// New returns an exchange; Run has it work.
func New(options Options) (*Exchange, error) {
	config, err := identity(options.Keys...)
	if err != nil {
		return nil, err
	}
	return &Exchange{options: options.withDefaults(), tls: config, shaken: map[net.Conn]tls.ConnectionState{},
		senders: map[string]*sender{}, heard: map[string]*Heard{},
		conns: map[net.Conn]struct{}{}, receivers: map[*receiver]struct{}{}, bases: map[lb.ServiceKey]known{},
		progress: make(chan struct{}, 1), joined: make(chan struct{}), flushes: make(chan chan struct{}),
		requestEarly: make(chan struct{}, 1)}, nil
}

// Run hands over until the context ends.
func (e *Exchange) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, e.close)
	group.Go(func() { e.accept(ctx, &group) })
	group.Go(func() { e.sendChanges(ctx) })
	group.Go(func() { e.join(ctx) })
	for {
		changed := e.options.Group.Changed()
		e.follow(ctx, &group)
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

// follow has a sender for each peer, and none for others.
func (e *Exchange) follow(ctx context.Context, group *sync.WaitGroup) {
	e.mu.Lock()
	defer e.mu.Unlock()
	present := map[string]bool{}
	for _, peer := range e.options.Group.Peers() {
		present[peer.Name] = true
		if s := e.senders[peer.Name]; s != nil {
			if s.peer == peer {
				s.wake()
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
			// One that was only held up may not have noticed that it was taken for gone: when it is a peer again, it
			// sends by the connection that it has, which is forgotten when it ends (peerDisconnected).
			if h := e.heard[name]; h != nil && !h.Connected {
				delete(e.heard, name)
			}
		}
	}
	for conn := range e.conns {
		if !e.options.IsPeer(addressOf(conn.RemoteAddr())) {
			conn.Close() // it was a peer's, and is none's any more
		}
	}
}

// Joined returns a channel that is closed once each peer that is reached has sent all flows that it knows, and there is
// one; or when JoinTimeout is over. Before that, this balancer would break connections of others.
func (e *Exchange) Joined() <-chan struct{} { return e.joined }

// join waits for it.
func (e *Exchange) join(ctx context.Context) {
	defer close(e.joined)
	expired := time.After(e.options.JoinTimeout)
	for !e.hasHeardAll() {
		select {
		case <-ctx.Done():
			return
		case <-expired:
			return
		case <-e.progress:
		}
	}
}

func (e *Exchange) hasHeardAll() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name := range e.senders {
		if h := e.heard[name]; h == nil || !h.Whole {
			return false
		}
	}
	return len(e.senders) > 0
}

func (e *Exchange) progressed() {
	signal(e.progress)
}

// sendChanges looks for changed flows, and hands them to all senders.
func (e *Exchange) sendChanges(ctx context.Context) {
	timer := time.NewTimer(e.options.Every)
	defer timer.Stop()
	var hurry time.Time // until then all flows are looked at each time
	for {
		var flush chan struct{}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case flush = <-e.flushes:
			hurry = later(hurry, time.Now().Add(hurried))
		case <-e.requestEarly:
			hurry = later(hurry, time.Now().Add(earlyFor))
		}
		now, sendChanges := time.Now(), e.sendOnce
		hurries := now.Before(hurry)
		if hurries {
			sendChanges = e.sendAllFlows
		}
		if err := sendChanges(now); err != nil {
			e.options.Log.Debug("reading flows for other members", "error", err)
		}
		if flush != nil {
			close(flush)
		}
		if err := e.regain(); err != nil {
			e.options.Log.Debug("asking other members for flows again", "error", err)
		}
		took := time.Since(now)
		timer.Reset(max(0, e.pause(hurries, took)-took))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sendOnce sends bases first: a flow is taken where its slot is known to have changed hands.
func (e *Exchange) sendOnce(now time.Time) error {
	if err := e.sendBases(now, e.options.Round); err != nil {
		return err
	}
	return e.sendFlows(int(int64(e.options.DataPlane.FlowPlaces())*int64(e.options.Every)/int64(e.options.Round)) + 1)
}
