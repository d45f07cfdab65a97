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

// Intervals and limits of announcements and renewals.
const (
	// announceInterval is the minimum time between the beginnings of rounds of announcements.
	announceInterval = time.Second
	// announceBatch is the number of announcements in one batch, and announcePause the time between batches: 10,000
	// announcements a second are no load for a segment, and leave the loop time for other work.
	announceBatch = 500
	announcePause = 50 * time.Millisecond
	// minLifetime is the minimum lifetime of shared addresses without the process, and renewInterval how often they are
	// renewed: a process that is late twice loses none.
	minLifetime   = 6 * time.Second
	renewInterval = 2 * time.Second
)

// Host changes the addresses of the host's interfaces.
type Host interface {
	// AddAddresses adds addresses to a link, all of them or none.
	AddAddresses(link string, addrs []netip.Addr, opt hostnet.AddressOptions) error
	// RemoveAddresses removes addresses from a link, as many as it can.
	RemoveAddresses(link string, addrs []netip.Addr) error
	// RenewAddresses extends the lifetime of the balancer's addresses to opt.Lifetime from now, or without limit if
	// that is 0.
	RenewAddresses(link string, addrs []netip.Addr, opt hostnet.AddressOptions) error
}

// VIPs manages the balancer's addresses on its first interface, which are the VIPs and those of full NAT: it adds them,
// restores those that others remove, and announces them. Only the loop may use it.
type VIPs struct {
	host Host
	// notify announces addresses to the segment.
	notify func(link string, vips ...netip.Addr) error
	log    *slog.Logger
	// changed is called after each change of the host.
	changed func()
	// link is the first interface, as read last, and compared says that its addresses were compared with held since
	// then.
	link     iface.State
	compared bool
	// held are the desired addresses of the interface.
	held []netip.Addr
	// announceTask makes the next announcements of the round with index round in AnnounceAt, which began at roundBegan;
	// announced is the number of addresses announced in it.
	announceTask *loop.Task
	round        int
	announced    int
	roundBegan   time.Time
	// announcements is the election's count of requested announcements, as of the last SetElection.
	announcements uint64
	// silent: another balancer may hold the addresses, so that nothing is announced.
	silent bool
	// lifetime is how long the addresses stay without this process; 0: without limit. renewTask renews them; renewed is
	// the number of those renewed in this round.
	lifetime  time.Duration
	renewTask *loop.Task
	renewed   int
}

// New returns VIPs without addresses. notify announces addresses to the segment of a link, and changed is called after
// each change of the host.
func New(host Host, notify func(link string, vips ...netip.Addr) error, log *slog.Logger, changed func(),
	loop *loop.Loop) *VIPs {
	h := &VIPs{host: host, notify: notify, log: log, changed: changed}
	h.announceTask, h.renewTask = loop.AddFunc(h.announceNext), loop.AddFunc(h.renewNext)
	return h
}

// Addresses returns the desired addresses of the first interface.
func (h *VIPs) Addresses() []netip.Addr { return h.held }

// Start announces the addresses that the first desired state has put on the interface. takesOver: the previous process
// may have left them there, with a lifetime that has to be renewed.
func (h *VIPs) Start(takesOver bool) {
	h.AnnounceAll()
	if h.lifetime > 0 || takesOver {
		h.renewAll()
	}
}

// SetElection applies an election's result: whether this balancer holds the VIPs, whether it only keeps them while the
// election is undecided, and how many announcements were requested so far.
func (h *VIPs) SetElection(holds, undecided bool, announcements uint64) {
	wasSilent, before := h.silent, h.announcements
	h.silent, h.announcements = undecided, announcements
	switch {
	case !holds || h.silent:
	case wasSilent:
		h.AnnounceAll()
	case before != h.announcements:
		h.reannounce()
	}
}

// RemoveAll removes the addresses from the interface.
func (h *VIPs) RemoveAll() { h.remove(h.link.Name, h.held) }

// lifetimeOf returns how long addresses stay on the interface without the process. After another balancer has taken
// over from one that was killed, the kernel of the latter would otherwise go on answering ARP for them. The lifetime is
// longer than the takeover takes, because until then packets arrive here, and are served.
func lifetimeOf(v *view.View) time.Duration {
	if v.Config.VRRP.ID == 0 {
		return 0
	}
	return max(minLifetime, (4*v.Config.VRRP.Interval).Truncate(time.Second)+time.Second)
}

// Plan returns the steps that add the next view's addresses to the interface, and remove those that it does not have.
func (h *VIPs) Plan(before, next *view.View) (apply, cleanup []steps.Step) {
	same := before.Layout == next.Layout && before.Passive == next.Passive && before.Joining == next.Joining
	if same && len(next.Withdrawable) == 0 {
		return nil, nil
	}
	present, desired := before.AddressesHeld(), next.AddressesHeld()
	if same && slices.Equal(present, desired) {
		return nil, nil
	}
	added, removed := view.Without(desired, present), view.Without(present, desired)
	previousLink, nextLink, lifetime := h.link, h.link, h.lifetime
	// An interface that was created again with the same name gets them by RestoreMissing.
	if moves := len(before.Links) > 0 && !view.SameLink(before.Links[0], next.Links[0]) &&
		before.Links[0].Name != next.Links[0].Name; moves {
		// They are added to the new first interface before they are removed from the old one.
		added, removed, nextLink = desired, present, next.Links[0]
	}
	apply = []steps.Step{{
		// The new addresses are not announced yet.
		Do: func() error {
			h.lifetime = lifetimeOf(next)
			if err := h.add(nextLink.Name, added); err != nil {
				h.lifetime = lifetime
				return err
			}
			// The state of the interface was read before that.
			h.link, h.held, h.compared = nextLink, desired, true
			return nil
		},
		Undo: func() error {
			h.link, h.held, h.lifetime = previousLink, present, lifetime
			h.remove(nextLink.Name, added)
			return nil
		},
	}}
	cleanup = []steps.Step{{Do: func() error {
		LogWithdrawn(h.log, before, next)
		h.remove(previousLink.Name, removed)
		if len(added) > 0 {
			h.AnnounceAll()
		}
		if h.lifetime != lifetime || len(added) > 0 && h.lifetime > 0 {
			h.renewAll()
		}
		return nil
	}}}
	return apply, cleanup
}

// SetLink sets the state of the first interface, and announces the addresses if it came up or has another MAC address.
func (h *VIPs) SetLink(now iface.State) {
	previous := h.link
	h.link, h.compared = now, false
	if now.Up && (!previous.Up || view.HasMoved(previous, now)) {
		h.AnnounceAll()
	}
}

// RestoreMissing adds addresses that are missing on the interface, once for each state of it.
func (h *VIPs) RestoreMissing() error {
	// An interface that goes down loses its IPv6 addresses; they could be added again now, but not announced.
	if h.compared || !h.link.Up {
		return nil
	}
	lost := view.MissingAddresses(h.link, h.held)
	if err := h.add(h.link.Name, lost); err != nil {
		return err
	}
	h.compared = true
	if len(lost) > 0 {
		h.AnnounceAll()
	}
	return nil
}

// add adds addresses to an interface, all of them or none.
func (h *VIPs) add(link string, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	// A VIP is deprecated, so that it is never the source of the host's own packets: a backend that is checked from the
	// VIP would answer to itself. There is no duplicate address detection: the backends have the VIP, too, and do not
	// announce it. An address of full NAT must not be a source of the host's packets either, because its ports belong
	// to flows.
	err := h.host.AddAddresses(link, addrs, h.options())
	h.changed()
	return err
}

func (h *VIPs) options() hostnet.AddressOptions {
	return hostnet.AddressOptions{ScopeHost: true, Deprecated: true, NoDAD: true, Lifetime: h.lifetime}
}

// renewAll starts to set the lifetime of all addresses, including those that the previous process, or a configuration
// with another lifetime, has left.
func (h *VIPs) renewAll() {
	h.renewed = 0
	h.renewTask.Schedule(0)
}

// renewNext renews the next batch of addresses, and after the last one schedules the next round.
func (h *VIPs) renewNext() {
	end := min(h.renewed+announceBatch, len(h.held))
	batch := h.held[min(h.renewed, end):end]
	h.renewed = end
	if len(batch) > 0 && h.link.Up {
		if err := h.host.RenewAddresses(h.link.Name, batch, h.options()); err != nil {
			h.log.Warn(loglines.OneLine(err))
			h.renewed = 0
			h.renewTask.Schedule(renewInterval)
			return
		}
	}
	switch {
	case end < len(h.held):
		h.renewTask.Schedule(announcePause)
	case h.lifetime > 0 && len(h.held) > 0:
		h.renewed = 0
		h.renewTask.Schedule(renewInterval)
	}
}

// remove removes addresses from an interface. A failure is logged; what is left is removed when the process ends.
func (h *VIPs) remove(link string, addrs []netip.Addr) {
	if len(addrs) == 0 {
		return
	}
	if err := h.host.RemoveAddresses(link, addrs); err != nil {
		h.log.Warn(loglines.OneLine(err))
	}
	h.changed()
}

// AnnounceAll announces all addresses to the segment, at each of the times in AnnounceAt.
func (h *VIPs) AnnounceAll() {
	h.round, h.announced = 0, 0
	h.announceTask.Schedule(0)
}

// reannounce starts new rounds of announcements, because another host may have announced the addresses. However often
// it is called, rounds begin at least announceInterval apart.
func (h *VIPs) reannounce() {
	switch since := time.Since(h.roundBegan); {
	case h.announced > 0:
		h.round = 0 // the round in progress counts as the first of the new ones
	case h.round == 0 && h.announceTask.Scheduled():
	case since < announceInterval:
		h.round = 1
		h.announceTask.Schedule(announceInterval - since)
	default:
		h.AnnounceAll()
	}
}

// announceNext makes the next batch of announcements of a round: all at once would delay the loop's other work.
func (h *VIPs) announceNext() {
	if h.round >= len(AnnounceAt) || !h.link.Up || h.silent {
		return
	}
	if h.announced == 0 {
		h.roundBegan = time.Now()
	}
	end := min(h.announced+announceBatch, len(h.held))
	if batch := h.held[min(h.announced, end):end]; len(batch) > 0 {
		if err := h.notify(h.link.Name, batch...); err != nil {
			h.log.Warn(loglines.OneLine(err))
		}
	}
	if h.announced = end; end < len(h.held) {
		h.announceTask.Schedule(announcePause)
		return
	}
	h.announced = 0
	if h.round++; h.round < len(AnnounceAt) {
		h.announceTask.Schedule(AnnounceAt[h.round] - AnnounceAt[h.round-1])
	}
}

// AnnounceAt has the times at which VIPs are announced, relative to the event that makes it necessary. Frames may be
// lost, other balancers answer for the VIPs until they have received this one's advertisement, and a switch port
// forwards nothing while it is listening and learning: for 30 s by the spanning tree protocol's timers, and for 50 s
// after a failure elsewhere (IEEE 802.1D-2004 clause 17.14).
var AnnounceAt = [...]time.Duration{0, announceInterval, 2 * time.Second, 5 * time.Second,
	15 * time.Second, 35 * time.Second, 55 * time.Second}

// LogWithdrawn logs which VIPs are withdrawn because no backend serves, and which are held again.
func LogWithdrawn(log *slog.Logger, before, next *view.View) {
	var withdrawn, back []netip.Addr
	for _, vip := range next.Addresses {
		switch wasWithdrawn, isWithdrawn := before.Withdrawn(vip), next.Withdrawn(vip); {
		case isWithdrawn && !wasWithdrawn:
			withdrawn = append(withdrawn, vip)
		case wasWithdrawn && !isWithdrawn:
			back = append(back, vip)
		}
	}
	if len(withdrawn) > 0 {
		log.Warn("no backend serves, so the VIP is withdrawn: " + loglines.AddressList(withdrawn))
	}
	if len(back) > 0 {
		log.Info("a backend serves, so the VIP is held again: " + loglines.AddressList(back))
	}
}
