// SPDX-License-Identifier: Apache-2.0

package neigh

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

// Groups of the kernel's states of a neighbour (NUD_*, include/uapi/linux/neighbour.h).
const (
	// statesConfigured: configured by an administrator, never changed nor probed.
	statesConfigured = netlink.NUD_PERMANENT | netlink.NUD_NOARP
	statesAnswered   = netlink.NUD_REACHABLE | statesConfigured
	// statesProbing entries have a MAC address that the kernel is verifying, or
	// is about to.
	statesProbing = netlink.NUD_DELAY | netlink.NUD_PROBE
)

// peer is a watched address.
type peer struct {
	entry       Entry
	kernelState int           // the last state in the kernel, one of NUD_*
	nextProbe   time.Time     // the time of the next probe
	wait        time.Duration // the interval to the probe after that, if it does not answer
	// verifying: the kernel was made to verify the entry, and has not reported that yet.
	verifying bool
}

func newPeer(addr netip.Addr) *peer {
	return &peer{entry: Entry{Address: addr, State: Unknown, Reason: "was not asked yet"}}
}

// update applies the kernel's entry of the address, the zero Neigh if none, and sets the time of the next probe. It
// reports whether the entry has changed.
func (p *peer) update(n netlink.Neigh, now time.Time, pace timing) bool {
	before := p.entry
	if n.State == netlink.NUD_FAILED && p.kernelState&(netlink.NUD_REACHABLE|netlink.NUD_STALE) != 0 {
		// An entry fails while it is probed. This one was deleted instead, as by `ip neigh flush`: the kernel first
		// shows it as failed.
		n = netlink.Neigh{}
	}
	p.kernelState = n.State
	p.entry.State, p.entry.MAC = nextState(before, n)
	p.entry.Reason = ""
	if p.entry.MAC == nil {
		p.entry.Reason = reason(p.entry, n)
	}
	if p.wait == 0 || p.entry.State == Reachable {
		p.wait = pace.retry
	}
	switch {
	case p.entry.State == Reachable:
		p.nextProbe = now.Add(jitter(pace.verify))
	case p.kernelState&statesProbing != 0:
		// The kernel will report the result.
		p.nextProbe = now.Add(pace.verify)
	case p.kernelState == netlink.NUD_STALE:
		p.nextProbe = earlier(p.nextProbe, now.Add(pace.verifyNew))
	case before.MAC != nil:
		// It was lost just now.
		p.nextProbe, p.wait = now, pace.retry
	}
	return before.State != p.entry.State || !bytes.Equal(before.MAC, p.entry.MAC)
}

// nextState returns the state and MAC address that result from the previous entry and the kernel's present one.
func nextState(before Entry, n netlink.Neigh) (string, net.HardwareAddr) {
	switch {
	case n.State&(statesAnswered|statesProbing|netlink.NUD_STALE) != 0:
		if !usable(n.HardwareAddr) {
			return Failed, nil
		}
		mac := before.MAC
		if !bytes.Equal(mac, n.HardwareAddr) {
			mac = slices.Clone(n.HardwareAddr)
		}
		switch {
		case n.State&statesAnswered != 0:
			return Reachable, mac
		case n.State == netlink.NUD_STALE:
			return Stale, mac
		case before.State == Reachable && bytes.Equal(before.MAC, mac):
			return Reachable, mac
		}
		return Probing, mac
	case n.State&netlink.NUD_FAILED != 0, before.State == Failed:
		return Failed, nil
	case before.MAC != nil:
		// The entry was flushed, or evicted from a full table. That says nothing about the peer, which is probed again
		// and has a few seconds to answer before it counts as failed.
		return Probing, before.MAC
	}
	return before.State, nil
}

// usable reports whether a MAC address is a unicast address: others would flood the link, or reach no host.
func usable(mac net.HardwareAddr) bool {
	return len(mac) == 6 && mac[0]&1 == 0 && !bytes.Equal(mac, make([]byte, 6))
}

// reason returns why an entry has no MAC address.
func reason(e Entry, n netlink.Neigh) string {
	switch {
	case e.State == Unknown:
		return "was not asked yet"
	case e.State == Probing:
		return "was asked, and has not answered yet"
	case n.HardwareAddr != nil:
		return fmt.Sprintf("answers with %s, which cannot be the MAC address of a host", n.HardwareAddr)
	case e.Address.Is4():
		return "does not answer ARP requests"
	}
	return "does not answer neighbour solicitations"
}

// probeSent records that the kernel was made to probe.
func (p *peer) probeSent(now time.Time, pace timing) {
	p.nextProbe = now.Add(p.wait)
	p.wait = min(2*p.wait, pace.maxRetry)
	if p.entry.State == Unknown {
		p.entry.State = Probing
		p.entry.Reason = reason(p.entry, netlink.Neigh{})
	}
}

// probeFailed records that the kernel could not be made to probe.
func (p *peer) probeFailed(err error) (changed bool) {
	changed = p.entry.State != Failed
	p.entry.State, p.entry.MAC, p.entry.Reason = Failed, nil, err.Error()
	return changed
}

// jitter returns a duration that is up to a quarter shorter, so that peers that were started together do not remain
// synchronised.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/4+1) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
