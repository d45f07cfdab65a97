// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/hostnet"
	"github.com/jeoul/jeoul/internal/iface"
)

// Role says whether this balancer holds its VIPs, where several balancers share them.
type Role interface {
	Holds() (bool, error)
	// Changes is signalled after Holds may have changed.
	Changes() <-chan struct{}
}

// vips holds the balancer's addresses on its first interface, which are the VIPs and those of
// full NAT: it puts them there, puts back what others take away, and announces them.
type vips struct {
	host Host
	// tell reaches the segment.
	tell func(link string, vips ...netip.Addr) error
	log  *slog.Logger
	// changed logs what the host has changed.
	changed func()
	// link is the first interface, as it was read last, and looked says that what it has was
	// compared with held since.
	link   iface.State
	looked bool
	// held are the addresses that are to be there.
	held []netip.Addr
	// turn makes the next announcements: rounds are still to be made, and this many
	// addresses of the present one are.
	turn   *task
	rounds int
	told   int
}

// addressesHeld are those that are to be on the first interface: none where another balancer
// has them, and no VIP that is withdrawn.
func (v *view) addressesHeld() []netip.Addr {
	if v.passive {
		return nil
	}
	if len(v.yielding) == 0 {
		return v.addresses
	}
	return slices.DeleteFunc(slices.Clone(v.addresses), v.withdrawn)
}

func (h *vips) change(before, next *view) (bring, retire []step) {
	same := before.layout == next.layout && before.passive == next.passive
	if same && len(next.yielding) == 0 {
		return nil, nil
	}
	was, is := before.addressesHeld(), next.addressesHeld()
	if same && slices.Equal(was, is) {
		return nil, nil
	}
	added, removed := without(is, was), without(was, is)
	old, now := h.link, h.link
	if moves := len(before.links) > 0 && !sameLink(before.links[0], next.links[0]); moves {
		// To the new first interface, and only then off the old one.
		added, removed, now = is, was, next.links[0]
	}
	bring = []step{{
		// It is not announced yet that the new addresses are here.
		do: func() error {
			if err := h.add(now.Name, added); err != nil {
				return err
			}
			// What was read of the interface is older than that.
			h.link, h.held, h.looked = now, is, true
			return nil
		},
		undo: func() error {
			h.link, h.held = old, was
			h.remove(now.Name, added)
			return nil
		},
	}}
	retire = []step{{do: func() error {
		tellWithdrawn(h.log, before, next)
		h.remove(old.Name, removed)
		if len(added) > 0 {
			h.announceAll()
		}
		return nil
	}}}
	return bring, retire
}

// follow takes up a new state of the first interface.
func (h *vips) follow(now iface.State) {
	was := h.link
	h.link, h.looked = now, false
	if now.Up && (!was.Up || moved(was, now)) {
		h.announceAll()
	}
}

// mend puts back what is missing on the interface, once for each state of it.
func (h *vips) mend() error {
	// Switching an interface off takes its IPv6 addresses away; they could be put back
	// now, but not announced.
	if h.looked || !h.link.Up {
		return nil
	}
	lost := missing(h.link, h.held)
	if err := h.add(h.link.Name, lost); err != nil {
		return err
	}
	h.looked = true
	if len(lost) > 0 {
		h.announceAll()
	}
	return nil
}

// add puts addresses on an interface, all of them or none.
func (h *vips) add(link string, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	// A VIP is never the source of what the host itself sends: a backend
	// that was probed from it would answer to itself. Nor is it looked for
	// elsewhere first: the backends have it too, and keep quiet about it. An
	// address of full NAT is not the host's to send from either, for its
	// ports are given away.
	err := h.host.AddAddresses(link, addrs, hostnet.AddressOptions{ScopeHost: true, Deprecated: true, NoDAD: true})
	h.changed()
	return err
}

// remove takes addresses off an interface. One that stays is logged, and removed at the
// end with the rest.
func (h *vips) remove(link string, addrs []netip.Addr) {
	if len(addrs) == 0 {
		return
	}
	if err := h.host.RemoveAddresses(link, addrs); err != nil {
		h.log.Warn(oneLine(err))
	}
	h.changed()
}

// announceAll tells the segment where our addresses are, a few times.
func (h *vips) announceAll() {
	h.rounds, h.told = announceTimes, 0
	h.turn.in(0)
}

// announceSome makes the next announcements of a round: not all at once, for what
// else there is to do would wait.
func (h *vips) announceSome() {
	if h.rounds <= 0 || !h.link.Up {
		return
	}
	end := min(h.told+announceAtOnce, len(h.held))
	if some := h.held[min(h.told, end):end]; len(some) > 0 {
		if err := h.tell(h.link.Name, some...); err != nil {
			h.log.Warn(oneLine(err))
		}
	}
	if h.told = end; end < len(h.held) {
		h.turn.in(announcePause)
		return
	}
	h.told = 0
	if h.rounds--; h.rounds > 0 {
		h.turn.in(announceEvery)
	}
}

// takeRole reads whether this balancer holds its VIPs, and logs a change of that.
func (c *Controller) takeRole() error {
	holds, err := c.opt.Role.Holds()
	if err != nil {
		return fmt.Errorf("read whether this balancer holds its VIPs: %w", err)
	}
	if c.passive == holds {
		c.opt.Log.Info(map[bool]string{true: "this balancer holds its VIPs", false: "this balancer does not hold its VIPs"}[holds])
	}
	c.passive = !holds
	return nil
}
