// SPDX-License-Identifier: Apache-2.0

package members

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

const (
	// pollInterval is the interval of checks for a changed state to send, or a difference to log.
	pollInterval = time.Second
	// resendInterval is the interval at which an unchanged state is sent again, because a message may be lost.
	resendInterval = 5 * time.Second
	// rejoinInterval is the interval of attempts to reach members that are not reached, which end a partition.
	rejoinInterval = 5 * time.Second
	// leaveTimeout bounds the sending of a leave message.
	leaveTimeout = time.Second
)

// Options are the settings and parts of a member.
type Options struct {
	lb.MembersConfig
	// Keys are accepted; it sends with the first.
	Keys Keys
	// Version is the version of the program.
	Version string
	// Local returns this balancer's present state. It must be cheap: it is called each second.
	Local func() Local
	Log   *slog.Logger
	// tuneConfig lets tests set other intervals.
	tuneConfig func(*memberlist.Config)
	// network, if not nil, replaces the kernel's network in tests: a transport that listens as configured, and a
	// function that opens connections from an address.
	network func(*memberlist.NetTransportConfig) (memberlist.NodeAwareTransport, dial, error)
	// wrap lets tests record and drop received packets.
	wrap func(memberlist.NodeAwareTransport) memberlist.NodeAwareTransport
	// tolerance is lb.MembersTolerance but in tests.
	tolerance time.Duration
}

// Local is the state of a balancer that it sends to the others.
type Local struct {
	// Configuration is a digest of the services as they are configured.
	Configuration  string
	Ready, Drained bool
	Tables         []lb.ServiceTable
}

// Membership is this balancer's membership among those that share its VIPs.
type Membership struct {
	opt       Options
	instance  uint64
	logFilter *logFilter
	sendMu    atomic.Bool
	// allowed are the peers, for lookups per packet; the map is replaced, never changed.
	allowed atomic.Pointer[map[netip.Addr]bool]
	// ring has the keys for memberlist. turning is held while they are replaced.
	ring   *memberlist.Keyring
	keysMu sync.Mutex
	keys   atomic.Pointer[Keys]
	// joinNow has a value when there are new peers to join at once.
	joinNow chan struct{}

	mu sync.Mutex
	// peers are the addresses of the others, as they are configured now.
	peers []netip.Addr
	// list is nil while this member cannot listen on its address, for the reason in problem.
	list    *memberlist.Memberlist
	problem string
	// own is the state that was sent last.
	own state
	// nodes are the members that were ever reached, by name. Former peers stay until memberlist finds them unreachable.
	nodes map[string]*node
	// unreached has the configured peers that have never answered, with the reason and the time since when.
	unreached map[netip.Addr]*unreachedPeer
	changed   chan struct{}
	// sendNow has a value when a peer has joined, to which the state is to be sent.
	sendNow chan struct{}
}

// node is another member.
type node struct {
	name     string
	address  netip.AddrPort
	state    ops.MemberState
	since    time.Time
	greeting greeting
	// ended are earlier processes at the same address, and those that have left: none of them can come back.
	ended []uint64
	// lastState is the last state that it sent; nil: none was accepted yet, for the reason in problem.
	lastState   *state
	problem     string
	differences map[string]*differing
}

// differing is a service of which a member has a different table.
type differing struct {
	difference
	since time.Time
	// warned: a warning was logged.
	warned bool
}

// unreachedPeer is a configured peer that is not reached.
type unreachedPeer struct {
	since  time.Time
	reason string
	// sameName is the name that it shares with another member; empty: it does not answer.
	sameName string
}

// updateState reads this balancer's state, and reports whether it has changed.
func (m *Membership) updateState() bool {
	local := m.opt.Local()
	next := state{Format: messageFormat, Name: m.opt.Name, Instance: m.instance, Configuration: local.Configuration,
		Ready: local.Ready, Drained: local.Drained,
		Keys: m.Keys().fingerprints(), Tables: tableStates(local.Tables)}
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := !sameState(&next, &m.own)
	next.Sequence = m.own.Sequence
	m.own = next
	return changed
}

func sameState(a, b *state) bool {
	return a.Configuration == b.Configuration && a.Ready == b.Ready && a.Drained == b.Drained &&
		slices.Equal(a.Keys, b.Keys) &&
		slices.EqualFunc(a.Tables, b.Tables, func(x, y tableState) bool {
			return x.Service == y.Service && x.Name == y.Name && x.Digest == y.Digest
		})
}

// encodeState returns this balancer's encoded state, with the next sequence number.
func (m *Membership) encodeState() []byte {
	m.mu.Lock()
	m.own.Sequence++
	own := m.own
	own.Tables = slices.Clone(own.Tables)
	m.mu.Unlock()
	return own.encode()
}

// sendState sends this balancer's state to all peers that are reached.
func (m *Membership) sendState() {
	m.mu.Lock()
	list := m.list
	m.mu.Unlock()
	if list == nil {
		return
	}
	m.sendStateTo(list)
}

// sendStateTo sends this balancer's state to each peer of a list that is reached, to all at once: one that stands still
// keeps it from no other.
func (m *Membership) sendStateTo(list *memberlist.Memberlist) {
	text := m.encodeState()
	var group sync.WaitGroup
	for _, to := range m.Peers() { // memberlist's own nodes may change while they are read
		node := &memberlist.Node{Name: to.Name, Addr: to.Address.Addr().AsSlice(), Port: to.Address.Port()}
		group.Go(func() { _ = list.SendReliable(node, text) }) // it is sent again soon
	}
	group.Wait()
}

// applyState stores the state that a member has sent.
func (m *Membership) applyState(text []byte) {
	s, err := decodeState(text)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.logFilter.logRefusal("a member's state", err.Error())
		return
	}
	n := m.nodes[s.Name]
	switch {
	case n == nil || n.greeting.Instance != s.Instance:
		// of the previous process, or of one that is not known yet: it says it again
	case n.lastState != nil && n.lastState.Sequence >= s.Sequence: // an older state, or a replay
	default:
		n.lastState = s
	}
}

// Peers returns the members that are reached now, by name, each with the address of its gossip. Safe for concurrent
// use.
func (m *Membership) Peers() []lb.Peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	var peers []lb.Peer
	for _, n := range m.nodes {
		if n.state == ops.MemberAlive && m.isPeer(n) {
			peers = append(peers, lb.Peer{Name: n.name, Address: n.address})
		}
	}
	slices.SortFunc(peers, func(a, b lb.Peer) int { return cmp.Compare(a.Name, b.Name) })
	return peers
}

// Changed returns a channel that is closed when Peers may have changed.
func (m *Membership) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// listener gets memberlist's events of members that join and leave. It is called under memberlist's locks.
type listener Membership

// NotifyJoin records that a member is reached.
func (l *listener) NotifyJoin(of *memberlist.Node) { (*Membership)(l).memberJoined(of) }

// NotifyUpdate records that a member is a new process.
func (l *listener) NotifyUpdate(of *memberlist.Node) { (*Membership)(l).memberJoined(of) }

// NotifyLeave records that a member is not reached, or has left.
func (l *listener) NotifyLeave(of *memberlist.Node) { (*Membership)(l).memberLeft(of) }

// NotifyConflict records that two members have the same name.
func (l *listener) NotifyConflict(one, other *memberlist.Node) {
	l.logFilter.logRefusal("name "+other.Address(),
		fmt.Sprintf("two members have the name %s, at %s and %s: give each its own (members.name)", one.Name,
			one.Address(), other.Address()))
	m := (*Membership)(l)
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.unreached[addressOf(other).Addr()]; s != nil {
		s.sameName = one.Name
		s.reason = fmt.Sprintf("it has the name %s, which the member at %s has, too: give each its own (members.name)",
			one.Name, addressOf(one).Addr())
	}
}

func addressOf(n *memberlist.Node) netip.AddrPort {
	address, _ := netip.AddrFromSlice(n.Addr)
	return netip.AddrPortFrom(address.Unmap(), n.Port)
}

// memberJoined records that a member is reached.
func (m *Membership) memberJoined(of *memberlist.Node) {
	if of.Name == m.opt.Name {
		return
	}
	g, err := decodeGreeting(of.Meta)
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[of.Name]
	if n == nil {
		n = &node{name: of.Name, differences: map[string]*differing{}}
		m.nodes[of.Name] = n
	}
	if n.greeting.Instance != g.Instance {
		n.lastState = nil
		if n.state != "" && n.address == addressOf(of) {
			n.processEnded()
		}
	}
	n.greeting, n.problem = g, ""
	switch {
	case err != nil:
		n.problem = err.Error()
	case g.Format != messageFormat:
		n.problem = fmt.Sprintf("it has version %s, whose messages have another format: tables are not compared",
			g.Version)
	}
	if n.state != ops.MemberAlive || n.address != addressOf(of) {
		n.state, n.since, n.address = ops.MemberAlive, time.Now(), addressOf(of)
		if !m.isPeer(n) {
			return
		}
		m.opt.Log.Info(fmt.Sprintf("member %s (%s) is reached", n.name, n.address), logAttrs("")...)
		if n.problem != "" {
			m.opt.Log.Warn(fmt.Sprintf("member %s: %s", n.name, n.problem), logAttrs("")...)
		}
	}
	m.notifyChanged()
	select {
	case m.sendNow <- struct{}{}:
	default:
	}
}

// maxEnded bounds the remembered ended processes of a member.
const maxEnded = 64

// processEnded records that the process of a member has ended.
func (n *node) processEnded() {
	if len(n.ended) == maxEnded {
		n.ended = slices.Delete(n.ended, 0, 1)
	}
	n.ended = append(n.ended, n.greeting.Instance)
}

// memberLeft records that a member is not reached any more.
func (m *Membership) memberLeft(of *memberlist.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[of.Name]
	if n == nil || n.state != ops.MemberAlive {
		return
	}
	// memberlist does not say here whether a member has left.
	left := n.lastState != nil && n.lastState.Leaving
	if !m.isPeer(n) {
		delete(m.nodes, of.Name)
		return
	}
	n.state, n.since, n.lastState = ops.MemberFailed, time.Now(), nil
	if left {
		n.state = ops.MemberLeft
		n.processEnded()
		m.opt.Log.Info(fmt.Sprintf("member %s (%s) has left", n.name, n.address), logAttrs("")...)
	} else {
		m.opt.Log.Warn(fmt.Sprintf("member %s (%s) is not reached any more", n.name, n.address), logAttrs("")...)
	}
	m.notifyChanged()
}

func (m *Membership) notifyChanged() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// logAttrs marks a logged line as an event of members.
func logAttrs(service string) []any {
	return []any{events.About{Kind: events.KindMembers, Service: service}.Attr()}
}
