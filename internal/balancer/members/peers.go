// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// IsPeer reports whether an address is one of the configured peers. It is cheap enough for each packet, and safe for
// concurrent use.
func (m *Membership) IsPeer(from netip.Addr) bool { return (*m.allowed.Load())[from] }

// isPeer reports whether a node is a peer.
func (m *Membership) isPeer(n *node) bool { return m.IsPeer(n.address.Addr()) }

// SetPeers replaces the addresses of the peers. New peers are joined at once. Removed ones are no longer in Peers, and
// their packets are refused. The removed members are not notified: each member has its own list of peers.
func (m *Membership) SetPeers(peers []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	added, removed := m.setPeers(peers)
	if len(added)+len(removed) == 0 {
		return
	}
	for name, n := range m.nodes {
		if m.isPeer(n) {
			continue
		}
		if slices.Contains(removed, n.address.Addr()) {
			m.opt.Log.Info(fmt.Sprintf("member %s (%s) is let go: %v any more", n.name, n.address, errNoPeer),
				logAttrs("")...)
		}
		// memberlist goes on probing a live member, also through others that have it as a peer, until it does not
		// answer; meanwhile it may become a peer again.
		n.lastState = nil
		clear(n.differences)
		if n.state != ops.MemberAlive {
			delete(m.nodes, name)
		}
	}
	if len(added) > 0 {
		m.opt.Log.Info("asking for the members at "+addressStrings(added), logAttrs("")...)
	}
	m.notifyChanged()
	for _, news := range []chan struct{}{m.joinNow, m.sendNow} {
		select {
		case news <- struct{}{}:
		default:
		}
	}
}

// setPeers stores the peers, and returns the added and the removed ones. The caller holds the lock, or has the only
// reference.
func (m *Membership) setPeers(peers []netip.Addr) (added, removed []netip.Addr) {
	before, allowed := m.peers, map[netip.Addr]bool{}
	m.peers = nil
	for _, peer := range peers {
		if peer = peer.Unmap(); peer != m.opt.Listen.Addr() && !allowed[peer] {
			allowed[peer] = true
			m.peers = append(m.peers, peer)
		}
	}
	m.allowed.Store(&allowed)
	for _, peer := range m.peers {
		if m.unreached[peer] == nil {
			m.unreached[peer] = &unreachedPeer{since: time.Now()}
			added = append(added, peer)
		}
	}
	for _, peer := range before {
		if !allowed[peer] {
			delete(m.unreached, peer)
			removed = append(removed, peer)
		}
	}
	return added, removed
}

func addressStrings(addresses []netip.Addr) string {
	list := make([]string, len(addresses))
	for i, a := range addresses {
		list[i] = a.String()
	}
	return strings.Join(list, ", ")
}

// NotifyAlive refuses messages about balancers that are not peers here, because each has its own list, and about ended
// processes: such a message is a replay, which memberlist would accept once it has forgotten the process.
func (l *listener) NotifyAlive(of *memberlist.Node) error {
	m, at := (*Membership)(l), addressOf(of).Addr()
	if at != m.opt.Listen.Addr() && !m.IsPeer(at) {
		return errNoPeer
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes[of.Name]; n != nil && len(n.ended) > 0 {
		if g, err := decodeGreeting(of.Meta); err == nil && slices.Contains(n.ended, g.Instance) {
			return errEnded
		}
	}
	return nil
}
