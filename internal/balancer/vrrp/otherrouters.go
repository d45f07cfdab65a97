// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// OtherRouter is a balancer or router that advertises the own VRID with none of the own VIPs: another virtual
// router, whose ADVERTISEMENTs are ignored.
type OtherRouter struct {
	Address netip.Addr
	// VIPs are the addresses that it advertises, of the family of Address.
	VIPs     []netip.Addr
	Priority uint8
	// Heard is when it advertised last.
	Heard time.Time
}

const (
	// maxSenders bounds the senders with other VIPs that are remembered, because they are easily forged.
	maxSenders = 16
	// expireIntervals is the number of its intervals, and minExpiry the time, after which a sender with other VIPs
	// expires, whichever is later.
	expireIntervals, minExpiry = 4, 3 * time.Second
)

// sender is a sender of the own VRID that advertises other VIPs than this balancer has.
type sender struct {
	OtherRouter
	// sharesVIPs: some of the VIPs are the same, so both are one virtual router, and its configurations differ.
	sharesVIPs bool
	// expires is when it expires unless it advertises again.
	expires time.Time
}

// senders are senders with other VIPs, by their addresses.
type senders map[netip.Addr]sender

// isOwnRouter reports whether a sender announces this balancer's virtual router, and remembers it if its VIPs are not
// the same. RFC 9568 section 7.1 lets a receiver verify the addresses, and leaves open how to treat a difference.
// keepalived ignores each such packet. Here a sender with a VIP in common counts, because adding a VIP to one balancer
// after the other must not make both active; a sender without one is another virtual router with the same id.
func (e *Elector) isOwnRouter(src netip.Addr, a Advert) (own bool) {
	vips := e.vipsOf(src.Is4())
	ours, addresses := announcedVIPs(vips), slices.Clone(a.Addresses)
	slices.SortFunc(ours, netip.Addr.Compare)
	slices.SortFunc(addresses, netip.Addr.Compare)
	if slices.Equal(ours, addresses) {
		delete(e.senders, src)
		return true
	}
	now, was := time.Now(), e.senders[src]
	other := sender{OtherRouter: OtherRouter{src, addresses, a.Priority, now}}
	other.expires = now.Add(max(expireIntervals*a.Interval, minExpiry))
	// This balancer's packets have no room for some VIPs of a long list, which may be those that the other advertises.
	other.sharesVIPs = slices.ContainsFunc(addresses, func(vip netip.Addr) bool { return slices.Contains(vips, vip) })
	if was.expires.IsZero() && len(e.senders) >= maxSenders {
		return other.sharesVIPs
	}
	e.senders[src] = other
	if was.expires.IsZero() || was.sharesVIPs != other.sharesVIPs || !slices.Equal(was.VIPs, addresses) {
		text := other.OtherRouter.String()
		if other.sharesVIPs {
			text = other.logDifference(a.VRID, ours)
		}
		e.opt.Log.Warn("VRRP: "+text, logAttrs)
	}
	return other.sharesVIPs
}

// logDifference says that a balancer of the same virtual router has other VIPs.
func (o sender) logDifference(vrid uint8, ours []netip.Addr) string {
	return fmt.Sprintf("%s announces other addresses as virtual router %d: %v, and this balancer %v",
		o.Address, vrid, abbreviate(o.VIPs), abbreviate(ours))
}

// String names the sender and the remedy.
func (f OtherRouter) String() string {
	return fmt.Sprintf("%s uses the same id for other VIPs, %v, and is ignored: "+
		"give one of the two groups of balancers another id", f.Address, abbreviate(f.VIPs))
}

// expire removes senders that no longer advertise.
func (o senders) expire(now time.Time) {
	for src, other := range o {
		if !now.Before(other.expires) {
			delete(o, src)
		}
	}
}

// nextExpiry is when the first sender expires; zero: there is none.
func (o senders) nextExpiry() (at time.Time) {
	for _, other := range o {
		if at.IsZero() || other.expires.Before(at) {
			at = other.expires
		}
	}
	return at
}

// sorted returns the senders of one kind by their addresses.
func (o senders) sorted(shares bool) (some []sender) {
	for _, other := range o {
		if other.sharesVIPs == shares {
			some = append(some, other)
		}
	}
	slices.SortFunc(some, func(a, b sender) int { return a.Address.Compare(b.Address) })
	return some
}
