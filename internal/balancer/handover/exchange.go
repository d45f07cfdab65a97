// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bufio"
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

// DataPlane has the flows to send to peers, and stores those of peers.
type DataPlane interface {
	// ChangedFlows continues a walk over the table of proven flows by a number of places, and visits the changed flows;
	// it returns true at the end of a walk.
	ChangedFlows(places int, visit func(*lb.Flow)) (bool, error)
	// FlowPlaces is the number of places of such a walk.
	FlowPlaces() int
	// SnapshotFlows returns a walk over all proven flows.
	SnapshotFlows() lb.FlowWalk
	// Bases returns the bases of the transitions in progress.
	Bases() ([]lb.Base, error)
	// MergeBase merges a base of another balancer.
	MergeBase(lb.Base) error
	// MergeFlows writes flows of another balancer.
	MergeFlows([]lb.Flow) (lb.MergeResult, error)
	// RetryMissed reports, once, that flows which MergeFlows has counted as missed would be accepted now.
	RetryMissed() (bool, error)
}

// Group lists the members.
type Group interface {
	// Peers returns the members that are reached now, each with the address at which it accepts flows.
	Peers() []lb.Peer
	// Changed returns a channel that is closed when Peers may have changed.
	Changed() <-chan struct{}
}

// Options configure an exchange.
type Options struct {
	// Name is this member's name.
	Name string
	// Keys are the secrets that all members share for handover: 32 bytes each, derived for Purpose. This member proves
	// the first, and accepts all of them.
	Keys [][]byte
	// Listener takes the connections of peers; Run closes it.
	Listener  net.Listener
	Group     Group
	DataPlane DataPlane
	Log       *slog.Logger
	// IsPeer reports whether connections from an address are accepted; nil: from all. Others are closed before anything
	// is read, so that a flood of them leaves room for peers.
	IsPeer func(from netip.Addr) bool
	// Refused is called for each refused connection or message, with the reason; nil: no call. It may be called often.
	Refused func(from netip.Addr, why error)
	// ScanInterval is the interval of scans of a part of the flows, and ScanPeriod the time for all; 0 means
	// DefaultScanInterval and DefaultScanPeriod.
	ScanInterval, ScanPeriod time.Duration
	// Queue bounds the bytes that wait for a peer; beyond it, the peer is sent all flows again. 0 means DefaultQueue.
	Queue int
	// SnapshotRate bounds the flows a second while a peer is sent all flows; 0 means DefaultSnapshotRate.
	SnapshotRate int
	// JoinTimeout bounds the wait for the peers' existing flows: see Joined. 0 means DefaultJoinTimeout.
	JoinTimeout time.Duration
	// stallTimeout is how long a peer may read nothing; 0 means writeTimeout. Tests have less.
	stallTimeout time.Duration
	// minBackoff is the first pause between attempts to connect; 0 means the constant of that name. Tests have
	// more.
	minBackoff time.Duration
}

// Defaults of Options.
const (
	DefaultScanInterval = 100 * time.Millisecond
	DefaultScanPeriod   = 500 * time.Millisecond
	DefaultQueue        = 4 << 20
	DefaultSnapshotRate = 500_000
	DefaultJoinTimeout  = 5 * time.Second
)

func (o Options) withDefaults() Options {
	o.ScanInterval, o.ScanPeriod = cmp.Or(o.ScanInterval, DefaultScanInterval), cmp.Or(o.ScanPeriod, DefaultScanPeriod)
	o.Queue, o.SnapshotRate = cmp.Or(o.Queue, DefaultQueue), cmp.Or(o.SnapshotRate, DefaultSnapshotRate)
	o.JoinTimeout, o.stallTimeout = cmp.Or(o.JoinTimeout, DefaultJoinTimeout), cmp.Or(o.stallTimeout, writeTimeout)
	o.minBackoff = cmp.Or(o.minBackoff, minBackoff)
	if o.IsPeer == nil {
		o.IsPeer = func(netip.Addr) bool { return true }
	}
	if o.Refused == nil {
		o.Refused = func(netip.Addr, error) {}
	}
	return o
}

// Exchange sends flows to peers, and receives theirs.
type Exchange struct {
	options Options

	mu  sync.Mutex
	tls *tls.Config
	// authenticated are the connections of both directions whose other end has proven a key.
	authenticated map[net.Conn]tls.ConnectionState
	senders       map[string]*sender
	received      map[string]*ReceiverStatus
	// conns are the incoming connections, and receivers those of peers whose names are known.
	conns     map[net.Conn]struct{}
	receivers map[*receiver]struct{}
	bases     map[lb.ServiceKey]sentBase
	// progress signals that a peer has joined, or has sent all its flows; joined is closed when there is nothing more
	// to wait for.
	progress, joined chan struct{}
	// flushWaiters are the calls of Flush that wait until peers are sent all flows, and requestEarly has a value when a
	// peer is to be sent flows sooner for a while.
	flushWaiters chan chan struct{}
	requestEarly chan struct{}
}

// sentBase is a base that was sent to peers, with the time, and its end at that time.
type sentBase struct {
	lb.Base
	at, until time.Time
}

// sendFlows sends the changed flows among the next places.
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

// batch encodes flows into messages.
type batch struct {
	four, six []byte
	done      []byte
	flows     uint64
}

// add adds a flow; a flow that cannot be encoded is left out.
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
	if len(*to)+flowBytes(k == kindFlows4) > maxBatchBytes {
		b.done, *to = appendMessage(b.done, k, *to), (*to)[:0]
	}
}

// messages returns the messages.
func (b *batch) messages() []byte {
	if len(b.four) > 0 {
		b.done = appendMessage(b.done, kindFlows4, b.four)
	}
	if len(b.six) > 0 {
		b.done = appendMessage(b.done, kindFlows6, b.six)
	}
	return b.done
}

// handshake authenticates the other end, and returns its name.
func (e *Exchange) handshake(conn *tls.Conn) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return "", err
	}
	defer conn.SetDeadline(time.Time{})
	if err := conn.Handshake(); err != nil {
		return "", err
	}
	if !e.authenticate(conn) {
		return "", ErrUntrusted
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

// handshakeTimeout bounds the TLS handshake and the first message.
const handshakeTimeout = 10 * time.Second

// receiver receives the flows of one peer.
type receiver struct {
	exchange *Exchange
	conn     *tls.Conn
	reader   *bufio.Reader
	status   *ReceiverStatus
	flows    []lb.Flow
	acked    uint64
	// missed: since the last request, flows of this connection were refused that would be accepted after a change here;
	// guarded by the exchange. again has a value when the peer is to be asked for them.
	missed bool
	resend chan struct{}
	// requestEarly has a value when the peer is to be asked to send new flows early.
	requestEarly chan struct{}
}

// ReceiverStatus is the state of the flows that a peer sends to this balancer.
type ReceiverStatus struct {
	Name string
	// Connected: it is connected, and sends flows; Complete: it has sent all flows from before.
	Connected, Complete bool
	// Added counts flows that were new here, Followed those known before; Refused counts by the reason.
	Added, Followed uint64
	Refused         map[string]uint64
	// Bases and RefusedBases count accepted and refused bases.
	Bases, RefusedBases uint64
}

// sender sends flows to one peer.
type sender struct {
	exchange *Exchange
	peer     lb.Peer
	cancel   context.CancelFunc

	mu sync.Mutex
	// queue has the encoded flows that wait, and queuedFlows their number.
	queue       []byte
	queuedFlows uint64
	// fullSync: all flows are to be sent to the peer; the queue is not needed.
	fullSync bool
	// syncing: all flows are being sent to it.
	syncing bool
	more    chan struct{}
	// reconnect has a value when the peer may have come back: the next attempt to connect does not wait.
	reconnect chan struct{}
	state     SenderStatus
}

// SenderStatus is the state of the flows that this balancer sends to a peer.
type SenderStatus struct {
	Peer lb.Peer
	// Connected: this balancer is connected to it.
	Connected bool
	// Flows and Bytes were sent over the present connection, without the headers of TLS and TCP.
	Flows, Bytes uint64
	// Behind is the number of flows that wait, or are not acknowledged.
	Behind uint64
	// FullSyncs counts how often all flows were sent to it, and Overflows how often the queue was full.
	FullSyncs, Overflows uint64
	// Failed is the reason for which there is no connection; nil while there is one.
	Failed error

	acked uint64
}
