// SPDX-License-Identifier: Apache-2.0

package members

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// New returns a member, which joins in Run.
func New(options Options) *Membership {
	m := &Membership{opt: options, instance: rand.Uint64(), nodes: map[string]*node{},
		unreached: map[netip.Addr]*unreachedPeer{},
		changed:   make(chan struct{}), sendNow: make(chan struct{}, 1), joinNow: make(chan struct{}, 1)}
	m.opt.tolerance = cmp.Or(m.opt.tolerance, lb.MembersTolerance)
	m.logFilter = &logFilter{log: options.Log, loggedAt: map[string]time.Time{}}
	m.own = state{Format: messageFormat, Name: options.Name, Instance: m.instance}
	m.setPeers(options.Peers)
	m.ring, _ = memberlist.NewKeyring(nil, options.Keys[0]) // it fails for lengths that no Key has
	m.keys.Store(&options.Keys)
	_ = replaceKeys(m.ring, options.Keys)
	return m
}

// Run takes part until the context ends. If it cannot listen on the address, it tries again.
func (m *Membership) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { m.joinLoop(ctx) })
	ticks := time.NewTicker(pollInterval)
	defer ticks.Stop()
	sendNow := time.Time{}
	for {
		resend := m.updateState() || time.Since(sendNow) >= resendInterval
		select {
		case <-m.sendNow:
			resend = true
		default:
		}
		if resend && m.sendMu.CompareAndSwap(false, true) {
			sendNow = time.Now()
			group.Go(func() {
				defer m.sendMu.Store(false)
				m.sendState()
			})
		}
		m.compare(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// Close ends the member: with leave, it notifies the others that it leaves permanently; otherwise they expect a new
// process in its place.
func (m *Membership) Close(leave bool) error {
	m.mu.Lock()
	list := m.list
	m.list, m.problem, m.own.Leaving = nil, "it has ended", leave
	m.mu.Unlock()
	if list == nil {
		return nil
	}
	if leave {
		m.sendStateTo(list)
		_ = list.Leave(leaveTimeout) // members that miss the message find out by their probes
	}
	if err := list.Shutdown(); err != nil {
		return fmt.Errorf("end being a member at %s: %w", m.opt.Listen, err)
	}
	return nil
}

// joinLoop listens, and joins members that are not reached.
func (m *Membership) joinLoop(ctx context.Context) {
	ticks := time.NewTicker(rejoinInterval)
	defer ticks.Stop()
	for {
		m.open(ctx)
		m.join(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-m.joinNow:
		}
	}
}

// open starts to listen, unless it does already. Connections to others end with the context.
func (m *Membership) open(ctx context.Context) {
	m.mu.Lock()
	there, before := m.list != nil, m.problem
	m.mu.Unlock()
	if there {
		return
	}
	list, err := m.create(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if m.problem = fmt.Sprintf("cannot listen for members on %s: %v", m.opt.Listen, err); m.problem != before {
			m.opt.Log.Warn(m.problem, logAttrs("")...)
		}
		return
	}
	m.list, m.problem = list, ""
	m.opt.Log.Info(fmt.Sprintf("member %s listens on %s", m.opt.Name, m.opt.Listen), logAttrs("")...)
}

func (m *Membership) create(ctx context.Context) (*memberlist.Memberlist, error) {
	c := memberlist.DefaultLANConfig()
	c.Name, c.Keyring = m.opt.Name, m.ring
	c.BindAddr, c.BindPort = m.opt.Listen.Addr().String(), int(m.opt.Listen.Port())
	c.AdvertiseAddr, c.AdvertisePort = c.BindAddr, c.BindPort
	c.Delegate, c.Events, c.Conflict, c.Alive = (*delegate)(m), (*listener)(m), (*listener)(m), (*listener)(m)
	c.Logger = m.logFilter.logger()
	// A member may come back with another address.
	c.DeadNodeReclaimTime = 30 * time.Second
	// A compressed message may expand to more than its size.
	c.EnableCompression = false
	if m.opt.tuneConfig != nil {
		m.opt.tuneConfig(c)
	}
	network := m.opt.network
	if network == nil {
		network = kernelNetwork
	}
	inner, dial, err := network(&memberlist.NetTransportConfig{
		BindAddrs: []string{c.BindAddr}, BindPort: c.BindPort, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	if m.opt.wrap != nil {
		inner = m.opt.wrap(inner)
	}
	guarded := newPeerTransport(ctx, inner, dial, m.opt.Listen.Addr(), m.IsPeer, m.logFilter.countUntrusted)
	c.Transport = guarded
	list, err := memberlist.Create(c)
	if err != nil {
		_ = guarded.Shutdown()
	}
	return list, err
}

// join contacts the configured peers that are not reached.
func (m *Membership) join(ctx context.Context) {
	m.mu.Lock()
	list, peers := m.list, m.peers
	there := map[netip.Addr]bool{}
	for _, n := range m.nodes {
		if n.state == ops.MemberAlive {
			there[n.address.Addr()] = true
		}
	}
	m.mu.Unlock()
	if list == nil {
		return
	}
	for _, peer := range peers {
		if there[peer] || ctx.Err() != nil {
			continue
		}
		_, err := list.Join([]string{netip.AddrPortFrom(peer, m.opt.Listen.Port()).String()})
		m.mu.Lock()
		if s := m.unreached[peer]; s != nil && err != nil {
			s.reason, s.sameName = joinError(err), ""
		}
		m.mu.Unlock()
	}
}

// delegate gives memberlist this member's messages.
type delegate Membership

// NodeMeta is the greeting.
func (d *delegate) NodeMeta(int) []byte {
	text, _ := json.Marshal(greeting{messageFormat, d.instance, truncate(d.opt.Version)})
	return text
}

// NotifyMsg handles the state of another member.
func (d *delegate) NotifyMsg(text []byte) { (*Membership)(d).applyState(text) }

// GetBroadcasts returns nothing: the state is sent to each member directly.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns the state for the exchange of two members.
func (d *delegate) LocalState(bool) []byte { return (*Membership)(d).encodeState() }

// MergeRemoteState handles the other member's state in such an exchange.
func (d *delegate) MergeRemoteState(text []byte, _ bool) { (*Membership)(d).applyState(text) }
