// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

const (
	keepInstance = "keep keepalived for this block, on each balancer"
	usualRouter  = 51
)

// vrrp carries over the instances that hold VIPs of services. Jeoul's VIPs are one group, which moves as a whole.
func (r *reader) vrrp() {
	var holders []*node
	for _, n := range r.instances {
		if slices.ContainsFunc(addressesOf(n), r.isVIP) {
			holders = append(holders, n)
		}
	}
	why := r.whyNotVRRP(holders)
	for _, n := range r.instances {
		switch {
		case !slices.Contains(holders, n):
			r.leave(n, "none of its addresses is a VIP of a service that is carried over; "+keepInstance)
		case why != "":
			r.leave(n, why)
		case n == holders[0]:
			r.instance(n, holders)
		default:
			r.Carry(n.at)
			r.below(n, func(c *node) { r.Carry(c.at) })
		}
	}
	for _, n := range r.syncGroups {
		if why != "" || len(holders) == 0 {
			r.leave(n, "of instances that are left out; "+keepInstance)
			continue
		}
		r.Carry(n.at)
		r.below(n, func(c *node) {
			if strings.HasPrefix(c.word(0), "notify") || c.word(0) == "smtp_alert" {
				r.Left(c.at, "Jeoul runs no program and sends no mail when VIPs move; watch its events, or its metrics")
				return
			}
			r.Carry(c.at)
		})
	}
}

// whyNotVRRP returns the reason why instances cannot be one group of VIPs, or "".
func (r *reader) whyNotVRRP(holders []*node) string {
	for _, n := range holders {
		for _, word := range []string{"virtual_router_id", "priority", "interface", "advert_int", "nopreempt"} {
			a, b := n.child(word), holders[0].child(word)
			if (a == nil) != (b == nil) || a != nil && a.word(1) != b.word(1) {
				return "several instances hold VIPs, and can be active on different balancers (" + word +
					"); Jeoul's VIPs move together; " + keepInstance
			}
		}
		if n.child("unicast_peer") != nil || n.child("unicast_src_ip") != nil {
			return "the balancers use unicast, and Jeoul the multicast of RFC 9568; " + keepInstance
		}
		if id, err := strconv.Atoi(setting([]*node{n}, "virtual_router_id")); n.child("virtual_router_id") != nil &&
			(err != nil || id < 1 || id > 255) {
			return "its virtual_router_id is none of 1 to 255"
		}
	}
	return ""
}

// addressesOf returns the addresses that an instance holds.
func addressesOf(n *node) (list []netip.Addr) {
	for _, block := range n.children {
		if block.word(0) != "virtual_ipaddress" && block.word(0) != "virtual_ipaddress_excluded" {
			continue
		}
		for _, c := range block.children {
			if addr, ok := held(c); ok {
				list = append(list, addr)
			}
		}
	}
	return list
}

// held reads ADDRESS[/LENGTH] in a block of addresses.
func held(c *node) (netip.Addr, bool) {
	text, _, _ := strings.Cut(c.word(0), "/")
	addr, err := netip.ParseAddr(text)
	return addr, err == nil
}

func (r *reader) isVIP(addr netip.Addr) bool {
	return slices.ContainsFunc(r.Services, func(s *draft.Service) bool { return s.VIP == addr })
}

// instance reads the first instance that holds VIPs.
func (r *reader) instance(n *node, holders []*node) {
	v := &r.VRRP
	*v = lb.VRRP{ID: usualRouter, Priority: lb.DefaultVRRPPriority, Interval: lb.DefaultVRRPInterval, Preempt: true,
		AnnounceInterval: lb.DefaultVRRPAnnounceInterval}
	r.Carry(n.at)
	if n.child("virtual_router_id") == nil {
		r.Approximate(n.at, "without a virtual_router_id, keepalived takes %d", usualRouter)
	}
	if setting([]*node{n}, "version") != "3" {
		r.Approximate(n.at,
			"Jeoul speaks VRRP version 3, which a keepalived without `version 3` ignores: change all balancers together, or give them that first")
	}
	var held []netip.Addr
	for _, holder := range holders {
		held = append(held, addressesOf(holder)...)
	}
	for _, s := range r.Services {
		if !slices.Contains(held, s.VIP) {
			r.Approximate(n.at, "all VIPs move together: also %s, which no instance holds", s.VIP)
		}
	}
	master := setting([]*node{n}, "state") == "MASTER"
	for _, c := range n.children {
		if master && (c.word(0) == "nopreempt" || c.word(0) == "preempt_delay") {
			r.Needless(c.at, "keepalived does not heed it beside state MASTER")
			continue
		}
		r.ofInstance(v, c)
	}
}

// ofInstance reads a statement of an instance.
func (r *reader) ofInstance(v *lb.VRRP, c *node) {
	value := c.word(1)
	switch word := c.word(0); word {
	case "virtual_router_id":
		n, _, err := draft.Number(value, 255)
		r.note(c, err)
		v.ID = uint8(n)
	case "priority":
		n, _, err := draft.Number(value, 255)
		if r.note(c, err); n > 254 {
			r.Approximate(c.at, "255 is of an owner of addresses; here the greatest is 254")
		}
		if err == nil {
			v.Priority = uint8(min(max(n, 1), 254))
		}
	case "interface":
		v.Interface = value
		r.Carry(c.at)
	case "advert_int":
		d, err := draft.Time(value, time.Second)
		r.note(c, err)
		if const10 := 10 * time.Millisecond; err == nil {
			v.Interval = min(max(d.Truncate(const10), const10), 4095*const10)
		}
	case "nopreempt":
		v.Preempt, v.PreemptDelay = false, 0
		r.Carry(c.at)
	case "preempt_delay":
		d, err := draft.Time(value, time.Second)
		r.note(c, err)
		if v.Preempt {
			v.PreemptDelay = min(d, time.Hour)
		}
	case "garp_master_refresh":
		d, err := draft.Time(value, time.Second)
		r.note(c, err)
		if err == nil && d >= time.Second {
			v.AnnounceInterval = min(d, time.Hour)
		}
	case "version":
		r.Carry(c.at)
	case "virtual_ipaddress", "virtual_ipaddress_excluded":
		r.heldAddresses(c)
	case "track_interface":
		r.needless(c,
			"while an interface that packets arrive on is down, Jeoul takes no part; of others, write doctor's or a routing daemon's checks")
	case "authentication":
		r.leave(c, "VRRP version 3 has no authentication (RFC 9568, section 9)")
	case "track_script", "track_process", "track_file", "track_bfd":
		r.leave(c, "Jeoul's priority falls by vrrp.weight for each service without a backend that serves, and by no program's word")
	case "notify", "notify_master", "notify_backup", "notify_fault", "notify_stop", "notify_deleted",
		"notify_master_rx_lower_pri":
		r.leave(c, "Jeoul runs no program when VIPs move; watch its events, or its metrics")
	case "lvs_sync_daemon_interface", "lvs_sync_daemon_inteface":
		r.Left(c.at, "%s", writeMembers)
	default:
		r.passOver(inVRRP, c)
	}
}

const writeMembers = "balancers tell each other of flows as members: write members, with their addresses and a key of `jeoul members key`, which this file does not have"

// heldAddresses reads a block of addresses, and remarks on addresses that are no VIPs.
func (r *reader) heldAddresses(n *node) {
	r.Carry(n.at)
	for _, c := range n.children {
		addr, ok := held(c)
		switch {
		case !ok:
			r.Left(c.at, "no address")
		case !r.isVIP(addr):
			r.Left(c.at, "is no VIP of a service that is carried over, and Jeoul moves VIPs alone; let keepalived hold it by an instance with another virtual_router_id")
		case c.word(1) == "dev" && c.word(2) != r.VRRP.Interface && r.VRRP.Interface != "":
			r.Approximate(c.at, "VIPs are on the first of interfaces, and not on %s", c.word(2))
		default:
			r.Carry(c.at)
		}
	}
}

// globals reads global_defs.
func (r *reader) globals(n *node) {
	r.Carry(n.at)
	for _, c := range n.children {
		switch c.word(0) {
		case "lvs_timeouts":
			r.timeouts(c)
		case "lvs_sync_daemon":
			r.Left(c.at, "%s", writeMembers)
		default:
			r.passOver(inGlobal, c)
		}
	}
}

// timeouts reads lvs_timeouts [tcp SECONDS] [tcpfin SECONDS] [udp SECONDS].
func (r *reader) timeouts(c *node) {
	into := map[string]struct {
		to      *time.Duration
		longest time.Duration
	}{"tcp": {&r.Timeouts.Established, draft.MaxEstablished}, "tcpfin": {&r.Timeouts.Fin, draft.MaxFin},
		"udp": {&r.Timeouts.UDP, draft.MaxUDP}}
	for i := 1; i+1 < len(c.words); i += 2 {
		of, known := into[c.words[i]]
		seconds, _, err := draft.Number(c.words[i+1], 1<<31)
		if !known || err != nil {
			r.Left(c.at, "%s %s is none of its timeouts", c.words[i], c.words[i+1])
			return
		}
		d := time.Duration(seconds) * time.Second
		if d > of.longest {
			r.Approximate(c.at, "%s is longer than the %s that Jeoul remembers a silent flow", d, of.longest)
		}
		if d > 0 {
			*of.to = min(d, of.longest)
		}
	}
	r.Carry(c.at)
}

// passOver remarks on a statement that the reader does not know: it has no effect, or it is left out.
func (r *reader) passOver(where string, c *node) {
	if why, needless := Keywords.Why(where, c.word(0)); needless {
		r.needless(c, why)
		return
	}
	r.leave(c, fmt.Sprintf("Jeoul has nothing like %s; look at it by hand", c.word(0)))
}
