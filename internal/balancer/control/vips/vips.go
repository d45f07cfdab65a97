// SPDX-License-Identifier: Apache-2.0

// Package vips is the actuator that holds the balancer's addresses on its first interface, and announces them.
package vips

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/steps"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// How long things take.
const (
	// announceEvery is how far apart rounds of announcements begin at least.
	announceEvery = time.Second
	// announceAtOnce is how many announcements are made in one go, and announcePause how long they are apart: 10,000 of
	// them in a second are no load for a segment, and leave the loop time for other work.
	announceAtOnce = 500
	announcePause  = 50 * time.Millisecond
	// addressesStay is for how long addresses that balancers share stay without the process, at least, and stayRenewed
	// how often they are renewed: a process that is late twice loses none.
	addressesStay = 6 * time.Second
	stayRenewed   = 2 * time.Second
)

// Host changes the addresses of the host's interfaces.
type Host interface {
	// AddAddresses puts all of them on a link, or none.
	AddAddresses(link string, addrs []netip.Addr, opt hostnet.AddressOptions) error
	// RemoveAddresses takes them off a link, as many as it can.
	RemoveAddresses(link string, addrs []netip.Addr) error
	// RenewAddresses has those of ours stay for opt.Lifetime more, or for good.
	RenewAddresses(link string, addrs []netip.Addr, opt hostnet.AddressOptions) error
}

// VIPs holds the balancer's addresses on its first interface, which are the VIPs and those of full NAT: it puts them
// there, puts back those that others remove, and announces them. It is its loop's own.
type VIPs struct {
	host Host
	// notify reaches the segment.
	notify func(link string, vips ...netip.Addr) error
	log    *slog.Logger
	// changed logs the host's changes.
	changed func()
	// link is the first interface, as it was read last, and looked says that its addresses were compared with held
	// since.
	link   iface.State
	looked bool
	// held are the addresses that are to be there.
	held []netip.Addr
	// turn makes the next announcements: those of a round of AnnounceAt that began last at began, of which this many
	// addresses are announced.
	turn  *loop.Task
	round int
	told  int
	began time.Time
	// announcements is how many the election had asked for when it was looked at last.
	announcements uint64
	// quiet: another balancer may have the addresses, and nothing is announced.
	quiet bool
	// lifetime is for how long the addresses stay without this process; 0: for good. renewal renews them, of which
	// this many have been.
	lifetime time.Duration
	renewal  *loop.Task
	renewed  int
}

// New returns VIPs without addresses. notify announces addresses to the segment of a link, and changed is
// called when the host has changed something.
func New(host Host, notify func(link string, vips ...netip.Addr) error, log *slog.Logger, changed func(),
	loop *loop.Loop) *VIPs {
	h := &VIPs{host: host, notify: notify, log: log, changed: changed}
	h.turn, h.renewal = loop.Quiet(h.announceSome), loop.Quiet(h.renewSome)
	return h
}

// Held are the addresses that are to be on the first interface.
func (h *VIPs) Held() []netip.Addr { return h.held }

// Begin announces the addresses that the first desired state has put on the interface. takesOver: the previous process
// may have left them there some time ago.
func (h *VIPs) Begin(takesOver bool) {
	h.AnnounceAll()
	if h.lifetime > 0 || takesOver {
		h.renewAll()
	}
}

// Elect takes note of an election's result: whether this balancer holds the VIPs, and only keeps them, and how often
// they were to be announced again so far.
func (h *VIPs) Elect(holds, keeping bool, announcements uint64) {
	was, before := h.quiet, h.announcements
	h.quiet, h.announcements = keeping, announcements
	switch {
	case !holds || h.quiet:
	case was:
		h.AnnounceAll()
	case before != h.announcements:
		h.announceAgain()
	}
}

// GiveUp removes the held addresses from the interface.
func (h *VIPs) GiveUp() { h.remove(h.link.Name, h.held) }

// lifetimeOf is for how long addresses stay on the interface without the process. Where another balancer takes them
// over from one that was killed, the kernel of that one would answer for them beside it for ever. It is longer than the
// others take, for until then packets arrive here, and are served.
func lifetimeOf(v *view.View) time.Duration {
	if v.Config.VRRP.ID == 0 {
		return 0
	}
	return max(addressesStay, (4*v.Config.VRRP.Interval).Truncate(time.Second)+time.Second)
}

// Change puts the addresses that the next view has on the interface, and takes off those that it has not.
func (h *VIPs) Change(before, next *view.View) (bring, retire []steps.Step) {
	same := before.Layout == next.Layout && before.Passive == next.Passive && before.Joining == next.Joining
	if same && len(next.Yielding) == 0 {
		return nil, nil
	}
	was, is := before.AddressesHeld(), next.AddressesHeld()
	if same && slices.Equal(was, is) {
		return nil, nil
	}
	added, removed := view.Without(is, was), view.Without(was, is)
	old, now, stayed := h.link, h.link, h.lifetime
	// An interface that was made anew with the same name gets them by Mend.
	if moves := len(before.Links) > 0 && !view.SameLink(before.Links[0], next.Links[0]) &&
		before.Links[0].Name != next.Links[0].Name; moves {
		// To the new first interface, and only then off the old one.
		added, removed, now = is, was, next.Links[0]
	}
	bring = []steps.Step{{
		// It is not announced yet that the new addresses are here.
		Do: func() error {
			h.lifetime = lifetimeOf(next)
			if err := h.add(now.Name, added); err != nil {
				h.lifetime = stayed
				return err
			}
			// The last reading of the interface is older than that.
			h.link, h.held, h.looked = now, is, true
			return nil
		},
		Undo: func() error {
			h.link, h.held, h.lifetime = old, was, stayed
			h.remove(now.Name, added)
			return nil
		},
	}}
	retire = []steps.Step{{Do: func() error {
		LogWithdrawn(h.log, before, next)
		h.remove(old.Name, removed)
		if len(added) > 0 {
			h.AnnounceAll()
		}
		if h.lifetime != stayed || len(added) > 0 && h.lifetime > 0 {
			h.renewAll()
		}
		return nil
	}}}
	return bring, retire
}

// Follow takes up a new state of the first interface.
func (h *VIPs) Follow(now iface.State) {
	was := h.link
	h.link, h.looked = now, false
	if now.Up && (!was.Up || view.HasMoved(was, now)) {
		h.AnnounceAll()
	}
}

// Mend puts missing addresses back on the interface, once for each state of it.
func (h *VIPs) Mend() error {
	// Switching an interface off takes its IPv6 addresses away; they could be put back
	// now, but not announced.
	if h.looked || !h.link.Up {
		return nil
	}
	lost := view.MissingAddresses(h.link, h.held)
	if err := h.add(h.link.Name, lost); err != nil {
		return err
	}
	h.looked = true
	if len(lost) > 0 {
		h.AnnounceAll()
	}
	return nil
}

// add puts addresses on an interface, all of them or none.
func (h *VIPs) add(link string, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	// A VIP is never the source of the host's own packets: a backend that was probed from it would answer to itself.
	// Nor is it looked for elsewhere first: the backends have it too, and keep quiet about it. An address of full NAT
	// is not the host's to send from either, for its ports are given away.
	err := h.host.AddAddresses(link, addrs, h.options())
	h.changed()
	return err
}

func (h *VIPs) options() hostnet.AddressOptions {
	return hostnet.AddressOptions{ScopeHost: true, Deprecated: true, NoDAD: true, Lifetime: h.lifetime}
}

// renewAll has the addresses that are there stay for as long as they are to, those too that the previous process has
// left, or a configuration with another lifetime.
func (h *VIPs) renewAll() {
	h.renewed = 0
	h.renewal.In(0)
}

// renewSome renews the next addresses, and at the end says when all are to be again.
func (h *VIPs) renewSome() {
	end := min(h.renewed+announceAtOnce, len(h.held))
	some := h.held[min(h.renewed, end):end]
	h.renewed = end
	if len(some) > 0 && h.link.Up {
		if err := h.host.RenewAddresses(h.link.Name, some, h.options()); err != nil {
			h.log.Warn(loglines.OneLine(err))
			h.renewed = 0
			h.renewal.In(stayRenewed)
			return
		}
	}
	switch {
	case end < len(h.held):
		h.renewal.In(announcePause)
	case h.lifetime > 0 && len(h.held) > 0:
		h.renewed = 0
		h.renewal.In(stayRenewed)
	}
}

// remove takes addresses off an interface. One that stays is logged, and removed at the
// end with the rest.
func (h *VIPs) remove(link string, addrs []netip.Addr) {
	if len(addrs) == 0 {
		return
	}
	if err := h.host.RemoveAddresses(link, addrs); err != nil {
		h.log.Warn(loglines.OneLine(err))
	}
	h.changed()
}

// AnnounceAll announces our addresses to the segment, at each time of AnnounceAt.
func (h *VIPs) AnnounceAll() {
	h.round, h.told = 0, 0
	h.turn.In(0)
}

// announceAgain does so where another host may have announced them. However often that is, rounds begin announceEvery
// apart at least.
func (h *VIPs) announceAgain() {
	switch since := time.Since(h.began); {
	case h.told > 0:
		h.round = 0 // the one under way is the first of the new ones
	case h.round == 0 && h.turn.On():
	case since < announceEvery:
		h.round = 1
		h.turn.In(announceEvery - since)
	default:
		h.AnnounceAll()
	}
}

// announceSome makes the next announcements of a round: not all at once, for the loop's other work would wait.
func (h *VIPs) announceSome() {
	if h.round >= len(AnnounceAt) || !h.link.Up || h.quiet {
		return
	}
	if h.told == 0 {
		h.began = time.Now()
	}
	end := min(h.told+announceAtOnce, len(h.held))
	if some := h.held[min(h.told, end):end]; len(some) > 0 {
		if err := h.notify(h.link.Name, some...); err != nil {
			h.log.Warn(loglines.OneLine(err))
		}
	}
	if h.told = end; end < len(h.held) {
		h.turn.In(announcePause)
		return
	}
	h.told = 0
	if h.round++; h.round < len(AnnounceAt) {
		h.turn.In(AnnounceAt[h.round] - AnnounceAt[h.round-1])
	}
}

// AnnounceAt are the times at which VIPs are announced, counted from the event that makes it necessary. Frames get
// lost, other balancers answer for the VIPs until they have heard of this one, and a port passes nothing while a switch
// listens and learns: for 30 s by the spanning tree protocol's timers, and for 50 s after a failure elsewhere (IEEE
// 802.1D-2004 clause 17.14).
var AnnounceAt = [...]time.Duration{0, announceEvery, 2 * time.Second, 5 * time.Second,
	15 * time.Second, 35 * time.Second, 55 * time.Second}

// LogWithdrawn logs which VIPs are withdrawn, and which are held again.
func LogWithdrawn(log *slog.Logger, before, next *view.View) {
	var gone, back []netip.Addr
	for _, vip := range next.Addresses {
		switch was, is := before.Withdrawn(vip), next.Withdrawn(vip); {
		case is && !was:
			gone = append(gone, vip)
		case was && !is:
			back = append(back, vip)
		}
	}
	if len(gone) > 0 {
		log.Warn("no backend serves, so the VIP is withdrawn: " + loglines.Some(gone))
	}
	if len(back) > 0 {
		log.Info("a backend serves, so the VIP is held again: " + loglines.Some(back))
	}
}
