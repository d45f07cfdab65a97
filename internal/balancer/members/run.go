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

// New returns a member that is not there before Run.
func New(options Options) *Membership {
	m := &Membership{opt: options, instance: rand.Uint64(), nodes: map[string]*node{},
		silent:  map[netip.Addr]*silence{},
		changed: make(chan struct{}), told: make(chan struct{}, 1), again: make(chan struct{}, 1)}
	m.opt.tolerance = cmp.Or(m.opt.tolerance, lb.MembersTolerance)
	m.logs = &filter{log: options.Log, seen: map[string]time.Time{}}
	m.own = state{Format: format, Name: options.Name, Instance: m.instance}
	m.usePeers(options.Peers)
	m.ring, _ = memberlist.NewKeyring(nil, options.Keys[0]) // it fails for lengths that no Key has
	m.keys.Store(&options.Keys)
	_ = turn(m.ring, options.Keys)
	return m
}

// Run is a member until the context ends. Where the address cannot be listened on, it tries again.
func (m *Membership) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { m.keepJoined(ctx) })
	ticks := time.NewTicker(look)
	defer ticks.Stop()
	told := time.Time{}
	for {
		again := m.note() || time.Since(told) >= repeat
		select {
		case <-m.told:
			again = true
		default:
		}
		if again && m.sending.CompareAndSwap(false, true) {
			told = time.Now()
			group.Go(func() {
				defer m.sending.Store(false)
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

// Close ends the member: with leave, the others are told that it goes for good, and else they find it again when
// another process has its place.
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
		_ = list.Leave(farewell) // who does not hear of it finds out
	}
	if err := list.Shutdown(); err != nil {
		return fmt.Errorf("end being a member at %s: %w", m.opt.Listen, err)
	}
	return nil
}

// keepJoined listens, and asks for members that are not reached.
func (m *Membership) keepJoined(ctx context.Context) {
	ticks := time.NewTicker(rejoin)
	defer ticks.Stop()
	for {
		m.open()
		m.join(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-m.again:
		}
	}
}

// open listens, if it does not yet.
func (m *Membership) open() {
	m.mu.Lock()
	there, before := m.list != nil, m.problem
	m.mu.Unlock()
	if there {
		return
	}
	list, err := m.create()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if m.problem = fmt.Sprintf("cannot listen for members on %s: %v", m.opt.Listen, err); m.problem != before {
			m.opt.Log.Warn(m.problem, about("")...)
		}
		return
	}
	m.list, m.problem = list, ""
	m.opt.Log.Info(fmt.Sprintf("member %s listens on %s", m.opt.Name, m.opt.Listen), about("")...)
}

func (m *Membership) create() (*memberlist.Memberlist, error) {
	c := memberlist.DefaultLANConfig()
	c.Name, c.Keyring = m.opt.Name, m.ring
	c.BindAddr, c.BindPort = m.opt.Listen.Addr().String(), int(m.opt.Listen.Port())
	c.AdvertiseAddr, c.AdvertisePort = c.BindAddr, c.BindPort
	c.Delegate, c.Events, c.Conflict, c.Alive = (*delegate)(m), (*listener)(m), (*listener)(m), (*listener)(m)
	c.Logger = m.logs.logger()
	// A member may have another address when it comes back.
	c.DeadNodeReclaimTime = 30 * time.Second
	// A compressed message may expand to more than its size.
	c.EnableCompression = false
	if m.opt.tune != nil {
		m.opt.tune(c)
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
	if m.opt.through != nil {
		inner = m.opt.through(inner)
	}
	guarded := newGuard(inner, dial, m.opt.Listen.Addr(), m.IsPeer, m.logs.stranger)
	c.Transport = guarded
	list, err := memberlist.Create(c)
	if err != nil {
		_ = guarded.Shutdown()
	}
	return list, err
}

// join asks for the configured peers that are not there.
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
		if s := m.silent[peer]; s != nil && err != nil {
			s.reason, s.sameName = joinText(err), ""
		}
		m.mu.Unlock()
	}
}

// delegate gives memberlist this member's messages.
type delegate Membership

// NodeMeta is the greeting.
func (d *delegate) NodeMeta(int) []byte {
	text, _ := json.Marshal(greeting{format, d.instance, bounded(d.opt.Version)})
	return text
}

// NotifyMsg takes the state of another member.
func (d *delegate) NotifyMsg(text []byte) { (*Membership)(d).receiveState(text) }

// GetBroadcasts returns nothing: the state is sent to each member by itself.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns the state for the exchange of two members.
func (d *delegate) LocalState(bool) []byte { return (*Membership)(d).encodeState() }

// MergeRemoteState takes the other member's state in such an exchange.
func (d *delegate) MergeRemoteState(text []byte, _ bool) { (*Membership)(d).receiveState(text) }
