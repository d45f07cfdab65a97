// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// DataPlane has the flows that are sent to peers, and takes those of peers.
type DataPlane interface {
	// ChangedFlows continues a walk over the table of proven flows by so many places, and visits flows that have
	// changed; it returns true at the end of a walk.
	ChangedFlows(places int, visit func(*lb.Flow)) (bool, error)
	// FlowPlaces is how many places such a walk goes by.
	FlowPlaces() int
	// SnapshotFlows returns a walk over all proven flows.
	SnapshotFlows() lb.FlowWalk
	// Bases returns the bases of the transitions in progress.
	Bases() ([]lb.Base, error)
	// TakeBase takes a base of another balancer.
	TakeBase(lb.Base) error
	// TakeFlows writes flows of another balancer.
	TakeFlows([]lb.Flow) (lb.FlowsTaken, error)
	// RetryMissed says, once, that flows which TakeFlows has counted as missed would be taken by now.
	RetryMissed() (bool, error)
}

// Group lists the members.
type Group interface {
	// Peers are the other members that are reached now, each at the address where it takes flows.
	Peers() []lb.Peer
	// Changed returns a channel that is closed when Peers may return others than before the call.
	Changed() <-chan struct{}
}

// Options say how to hand over.
type Options struct {
	// Name is this member's.
	Name string
	// Keys are the secrets that all members share for handover: 32 bytes each, derived for Purpose. The first is proven
	// to others, and each is accepted.
	Keys [][]byte
	// Listener takes the connections of peers; Run closes it.
	Listener  net.Listener
	Group     Group
	DataPlane DataPlane
	Log       *slog.Logger
	// IsPeer says whether connections from an address are listened to; nil: from all. Others are closed before anything
	// is read, so that a flood of theirs leaves peers their places.
	IsPeer func(from netip.Addr) bool
	// Refused is called for each refused connection or message, with the reason; nil: it is not. It may be called
	// often.
	Refused func(from netip.Addr, why error)
	// Every is how often a part of the flows is looked at, and Round how long it takes to look at all; 0 means
	// DefaultEvery and DefaultRound.
	Every, Round time.Duration
	// Queue bounds the bytes that wait for a peer; beyond it, the peer is sent all flows anew. 0 means DefaultQueue.
	Queue int
	// SnapshotRate bounds the flows a second in which a peer is sent all; 0 means DefaultSnapshotRate.
	SnapshotRate int
	// JoinTimeout bounds the wait for the flows that peers know already: see Joined. 0 means DefaultJoinTimeout.
	JoinTimeout time.Duration
	// stalled is how long a peer may take nothing; 0 means writeTimeout. Tests have less.
	stalled time.Duration
	// retry is the first pause between attempts to connect; 0 means firstPause. Tests have more.
	retry time.Duration
}

// Defaults of Options.
const (
	DefaultEvery        = 100 * time.Millisecond
	DefaultRound        = 500 * time.Millisecond
	DefaultQueue        = 4 << 20
	DefaultSnapshotRate = 500_000
	DefaultJoinTimeout  = 5 * time.Second
)

// mostConnections bounds those of peers.
const mostConnections = 64

func (o Options) withDefaults() Options {
	o.Every, o.Round = cmp.Or(o.Every, DefaultEvery), cmp.Or(o.Round, DefaultRound)
	o.Queue, o.SnapshotRate = cmp.Or(o.Queue, DefaultQueue), cmp.Or(o.SnapshotRate, DefaultSnapshotRate)
	o.JoinTimeout, o.stalled = cmp.Or(o.JoinTimeout, DefaultJoinTimeout), cmp.Or(o.stalled, writeTimeout)
	o.retry = cmp.Or(o.retry, firstPause)
	if o.IsPeer == nil {
		o.IsPeer = func(netip.Addr) bool { return true }
	}
	if o.Refused == nil {
		o.Refused = func(netip.Addr, error) {}
	}
	return o
}

// Exchange sends peers flows, and takes theirs.
type Exchange struct {
	options Options

	mu  sync.Mutex
	tls *tls.Config
	// shaken are the connections of both directions whose other end has proven a key.
	shaken  map[net.Conn]tls.ConnectionState
	senders map[string]*sender
	heard   map[string]*Heard
	// conns are the connections of peers that send to us, and receivers those of peers that are known by their names.
	conns     map[net.Conn]struct{}
	receivers map[*receiver]struct{}
	bases     map[lb.ServiceKey]known
	// progress says that a peer has come, or has sent all its flows; joined is closed when there is no more to wait
	// for.
	progress, joined chan struct{}
	// flushes are the calls of Flush that wait until peers are sent all flows, and hasten has a value when a peer is to
	// be sent flows sooner for a while.
	flushes      chan chan struct{}
	requestEarly chan struct{}
}

// known is a base that peers were sent, with the time of that, and the end that it had then.
type known struct {
	lb.Base
	at, until time.Time
}

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

// sendFlows sends the flows that have changed at the next so many places.
func (e *Exchange) sendFlows(places int) error {
	var b batch
	_, err := e.options.DataPlane.ChangedFlows(places, b.add)
	if messages := b.messages(); len(messages) > 0 {
		e.broadcast(messages, b.flows)
	}
	return err
}

func (e *Exchange) broadcast(messages []byte, flows uint64) {
	e.mu.Lock()
	senders := slices.Collect(maps.Values(e.senders))
	e.mu.Unlock()
	for _, s := range senders {
		s.enqueue(messages, flows)
	}
}

// batch makes messages of flows.
type batch struct {
	four, six []byte
	done      []byte
	flows     uint64
}

// add adds a flow; one that cannot be sent is left out.
func (b *batch) add(f *lb.Flow) {
	to, k := &b.four, kindFlows4
	if f.Client.Addr().Is6() {
		to, k = &b.six, kindFlows6
	}
	before := len(*to)
	next, err := appendFlow(*to, f)
	if err != nil {
		*to = (*to)[:before]
		return
	}
	*to = next
	b.flows++
	if len(*to)+flowBytes(k == kindFlows4) > batchBytes {
		b.done, *to = message(b.done, k, *to), (*to)[:0]
	}
}

// messages returns all.
func (b *batch) messages() []byte {
	if len(b.four) > 0 {
		b.done = message(b.done, kindFlows4, b.four)
	}
	if len(b.six) > 0 {
		b.done = message(b.done, kindFlows6, b.six)
	}
	return b.done
}

// hello is the first message of each end.
type hello struct {
	// Name is the name of the member that sends this.
	Name string `json:"name"`
}

// shake makes sure of the other end, and returns its name.
func (e *Exchange) shake(conn *tls.Conn) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(shakeTimeout)); err != nil {
		return "", err
	}
	defer conn.SetDeadline(time.Time{})
	if err := conn.Handshake(); err != nil {
		return "", err
	}
	if !e.prove(conn) {
		return "", ErrStranger
	}
	if err := writeHello(conn, e.options.Name); err != nil {
		return "", err
	}
	name, err := readHello(conn)
	if err == nil && name == e.options.Name {
		err = fmt.Errorf("%w (%s): give each member a name of its own", ErrSelf, name)
	}
	return name, err
}

// shakeTimeout bounds the TLS handshake and the first message.
const shakeTimeout = 10 * time.Second
