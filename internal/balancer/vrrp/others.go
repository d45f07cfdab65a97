// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Foreign is a balancer or router that advertises the own VRID with none of the own VIPs: another virtual router, whose
// ADVERTISEMENTs are ignored.
type Foreign struct {
	Address netip.Addr
	// VIPs are the addresses that it advertises, of the family of Address.
	VIPs     []netip.Addr
	Priority uint8
	// Heard is when it advertised last.
	Heard time.Time
}

const (
	// mostOthers bounds how many senders with other VIPs are remembered: anybody on the segment can invent them.
	mostOthers = 16
	// forgetAfter is the number of its intervals, and forgetAtLeast the time, after which a sender with other VIPs is
	// forgotten, whichever is later.
	forgetAfter, forgetAtLeast = 4, 3 * time.Second
)

// other is a sender of the own VRID that advertises other VIPs than this balancer has.
type other struct {
	Foreign
	// shares: some of the VIPs are the same, so both are one virtual router, and its configurations differ.
	shares bool
	// until is when it is forgotten unless it is heard again.
	until time.Time
}

// others are senders with other VIPs, by their addresses.
type others map[netip.Addr]other

// compare says whether a sender announces this balancer's virtual router, and notes it if its VIPs are not the same.
// RFC 9568 section 7.1 lets a receiver verify the addresses, and leaves open how to treat a difference. keepalived
// ignores each such packet. Here those with a VIP in common count, for a VIP that is added to or removed from one
// balancer after the other must not make both active; those without one are of another virtual router that was given
// the same id.
func (e *Elector) compare(src netip.Addr, a Advert) (own bool) {
	vips := e.vips(src.Is4())
	ours, theirs := announced(vips), slices.Clone(a.Addresses)
	slices.SortFunc(ours, netip.Addr.Compare)
	slices.SortFunc(theirs, netip.Addr.Compare)
	if slices.Equal(ours, theirs) {
		delete(e.others, src)
		return true
	}
	now, was := time.Now(), e.others[src]
	is := other{Foreign: Foreign{src, theirs, a.Priority, now}}
	is.until = now.Add(max(forgetAfter*a.Interval, forgetAtLeast))
	// A packet has no room for some VIPs of a long list, which may be those that the other one names.
	is.shares = slices.ContainsFunc(theirs, func(vip netip.Addr) bool { return slices.Contains(vips, vip) })
	if was.until.IsZero() && len(e.others) >= mostOthers {
		return is.shares
	}
	e.others[src] = is
	if was.until.IsZero() || was.shares != is.shares || !slices.Equal(was.VIPs, theirs) {
		text := is.Foreign.String()
		if is.shares {
			text = is.differs(a.VRID, ours)
		}
		e.opt.Log.Warn("VRRP: "+text, about)
	}
	return is.shares
}

// differs says that a balancer of the same virtual router has other VIPs.
func (o other) differs(vrid uint8, ours []netip.Addr) string {
	return fmt.Sprintf("%s announces other addresses as virtual router %d: %v, and this balancer %v",
		o.Address, vrid, brief(o.VIPs), brief(ours))
}

// String names the sender and the remedy.
func (f Foreign) String() string {
	return fmt.Sprintf("%s uses the same id for other VIPs, %v, and is ignored: "+
		"give one of the two groups of balancers another id", f.Address, brief(f.VIPs))
}

// forget drops senders that are not heard any more.
func (o others) forget(now time.Time) {
	for src, other := range o {
		if !now.Before(other.until) {
			delete(o, src)
		}
	}
}

// next is when the first sender is forgotten; zero: there is none.
func (o others) next() (at time.Time) {
	for _, other := range o {
		if at.IsZero() || other.until.Before(at) {
			at = other.until
		}
	}
	return at
}

// sorted returns the senders of one kind by their addresses.
func (o others) sorted(shares bool) (some []other) {
	for _, other := range o {
		if other.shares == shares {
			some = append(some, other)
		}
	}
	slices.SortFunc(some, func(a, b other) int { return a.Address.Compare(b.Address) })
	return some
}
