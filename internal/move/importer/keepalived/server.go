// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/importer/ipvsadm"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// mostInRange limits the addresses in a range of a group.
const mostInRange = 256

// modes maps keepalived's lb_kind to modes.
var modes = map[string]lb.Mode{"NAT": lb.NAT, "DR": lb.L2DSR, "TUN": lb.IPIP}

// place is the address and port of a virtual server.
type place struct {
	at   remark.At
	vip  netip.Addr
	port uint16
}

// virtualServer makes the services of a block: one, or one for each address of a group.
func (r *reader) virtualServer(n *node) {
	places, why := r.places(n)
	if why != "" {
		r.leave(n, why)
		return
	}
	protocol := lb.UDP
	switch c := n.child("protocol"); {
	case c == nil:
		r.Approximate(n.at,
			"names no protocol, which keepalived takes for UDP; write protocol: tcp where that was not meant")
	case c.word(1) == "TCP":
		protocol = lb.TCP
	case c.word(1) != "UDP":
		r.leave(n, "Jeoul balances TCP and UDP; keep IPVS for "+c.word(1))
		return
	}
	for _, at := range places {
		s := r.NewService(n.at)
		if at.at != n.at {
			s.At = at.at
		}
		r.Carry(at.at)
		s.VIP, s.Port, s.Protocol = at.vip, at.port, protocol
		if protocol == lb.UDP && r.Timeouts.UDP == 0 {
			r.Idle(n.at, lb.UDP, ipvsadm.UsualUDP)
		}
		r.fill(s, n)
	}
}

// places returns the addresses of a block's services, or the reason why there are none.
func (r *reader) places(n *node) (list []place, why string) {
	switch n.word(1) {
	case "fwmark":
		return nil, "a service by firewall mark: which VIPs and ports it has only the rules know that set the mark; write a service for each"
	case "group":
		group := r.groups[n.word(2)]
		if group == nil {
			return nil, "names the group " + n.word(2) + ", which is not there"
		}
		for _, c := range group.children {
			if c.word(0) == "fwmark" {
				r.Left(c.at, "a service by firewall mark; write a service for each VIP and port that it stands for")
				continue
			}
			more, err := r.addresses(c)
			if err != nil {
				r.Left(c.at, "%v", err)
			}
			list = append(list, more...)
		}
		if len(list) == 0 {
			return nil, "its group has no address that could be carried over"
		}
		return list, ""
	}
	port, err := draft.Port("tcp", n.word(2))
	if err != nil {
		return nil, fmt.Sprintf("a service has one port: %v; write one for each", err)
	}
	addr, err := r.Address(n.word(1))
	if err != nil {
		return nil, err.Error()
	}
	return []place{{n.at, addr, port}}, ""
}

// addresses reads ADDRESS PORT or FIRST-LAST PORT of a group. LAST is the last part of an address.
func (r *reader) addresses(n *node) ([]place, error) {
	port, err := draft.Port("tcp", n.word(1))
	if err != nil {
		return nil, err
	}
	from, to, isRange := strings.Cut(n.word(0), "-")
	first, err := r.Address(from)
	if err != nil || !isRange {
		return []place{{n.at, first, port}}, err
	}
	base := 10
	if first.Is6() {
		base = 16
	}
	last, err := strconv.ParseUint(to, base, 16)
	if err != nil {
		return nil, fmt.Errorf("%s is no range of addresses", n.word(0))
	}
	var list []place
	for addr, count := first, 0; addr.IsValid(); addr, count = addr.Next(), count+1 {
		bytes := addr.AsSlice()
		part := uint64(bytes[len(bytes)-1])
		if first.Is6() {
			part |= uint64(bytes[len(bytes)-2]) << 8
		}
		if part > last || count == mostInRange {
			break
		}
		list = append(list, place{n.at, addr, port})
		if part == last {
			return list, nil
		}
	}
	return nil, fmt.Errorf("%s is no range of up to %d addresses", n.word(0), mostInRange)
}

// fill reads a block into a service.
func (r *reader) fill(s *draft.Service, n *node) {
	scheduler, flags, at := "wlc", "", n.at
	var sorry *node
	s.Mode = lb.NAT // the default
	for _, c := range n.children {
		if slices.Contains(kindWords, c.word(0)) { // first, because real servers may precede it
			r.kind(s, c)
		}
	}
	usual := r.usualWeight(n)
	for _, c := range n.children {
		switch word := c.word(0); word {
		case "lb_algo", "lvs_sched":
			scheduler, at = c.word(1), c.at
			r.Carry(c.at)
		case "sh-port", "mh-port":
			flags = "port"
			r.Carry(c.at)
		case "lb_kind", "lvs_method", "weight": // read above
		case "protocol", "delay_loop", "delay_before_retry", "retry", "connect_timeout", "virtualhost":
			r.Carry(c.at) // virtualServer and the checks read it
		case "persistence_timeout":
			s.Persistence.Timeout = r.persistence(c)
		case "persistence_granularity":
			r.granularity(s, c)
		case "sorry_server":
			sorry = c
		case "real_server":
			r.realServer(s, c, usual)
		case "sorry_server_inhibit", "sorry_server_lvs_method": // read by sorryServer
			if sorry == nil && n.child("sorry_server") == nil {
				r.Needless(c.at, "is of a sorry server, and there is none")
			}
		default:
			r.other(c)
		}
	}
	switch {
	case s.Persistence.Prefix > 0 && n.child("persistence_timeout") == nil:
		s.Persistence.Timeout = usualPersistence // persistence_granularity switches it on
	case s.Persistence.Timeout == 0:
		s.Persistence.Prefix = 0
	}
	ipvsadm.Schedule(r.Draft, s, at, scheduler, flags)
	r.checks(s, n)
	r.inhibit(s, n)
	if sorry != nil {
		r.sorryServer(s, sorry, n)
	}
}

// kindWords are the keywords for the packet forwarding method.
var kindWords = []string{"lb_kind", "lvs_method"}

// kind reads the packet forwarding method.
func (r *reader) kind(s *draft.Service, c *node) {
	mode, known := modeOf(c)
	if !known && r.Mode == "" {
		r.Left(c.at, "Jeoul has no mode like it; give the service another by --mode")
		s.Unsafe = "Jeoul has no mode like `" + strings.Join(c.words, " ") + "`"
		return
	}
	s.Mode = mode
	r.Carry(c.at)
}

// modeOf returns the mode for a packet forwarding method.
func modeOf(c *node) (mode lb.Mode, known bool) {
	mode, known = modes[c.word(1)]
	if known && c.word(1) == "TUN" && c.word(2) == "type" && c.word(3) != "ipip" {
		return lb.GUE, c.word(3) == "gue"
	}
	return mode, known
}

// sameMode reports whether a server uses the mode of its service. c is the server's own packet forwarding method, or
// nil.
func (r *reader) sameMode(s *draft.Service, c *node) bool {
	if c == nil || r.Mode != "" {
		return true
	}
	mode, known := modeOf(c)
	return known && mode == s.Mode
}

// usualWeight returns the weight of real servers without a weight.
func (r *reader) usualWeight(n *node) uint16 {
	c := n.child("weight")
	if c == nil {
		return 1
	}
	weight, _, err := draft.Number(c.word(1), 65535)
	r.note(c, err)
	if err != nil {
		return 1
	}
	return uint16(weight)
}

// usualPersistence is keepalived's persistence timeout where it names none.
const usualPersistence = 6 * time.Minute

// persistence reads persistence_timeout, in seconds.
func (r *reader) persistence(c *node) time.Duration {
	const longest = 24 * time.Hour
	if len(c.words) < 2 {
		r.Carry(c.at)
		return usualPersistence
	}
	d, err := draft.Time(c.word(1), time.Second)
	if err != nil {
		r.Left(c.at, "%v", err)
		return 0
	}
	if d > longest {
		r.Approximate(c.at, "longer than the %s that Jeoul remembers a client", longest)
	}
	r.Carry(c.at)
	return min(d, longest)
}

func (r *reader) granularity(s *draft.Service, c *node) {
	prefix, err := ipvsadm.PrefixOf(c.word(1))
	if err != nil {
		r.Left(c.at, "%v, so each address is a client", err)
		return
	}
	s.Persistence.Prefix = prefix
	r.Carry(c.at)
}

// inhibit keeps the flows of real servers that fail, where inhibit_on_failure does. The lines have been remarked on.
func (r *reader) inhibit(s *draft.Service, n *node) {
	const word = "inhibit_on_failure"
	var some, other *node
	for _, server := range n.children {
		if server.word(0) != "real_server" || !r.backend(s, server) {
			continue
		}
		if c := cmp.Or(server.child(word), n.child(word)); c != nil {
			some = cmp.Or(some, c)
		} else {
			other = cmp.Or(other, server)
		}
	}
	if !s.Checks.On() || some == nil {
		return
	}
	s.Checks.OnDown = lb.KeepFlows
	if other != nil && lb.DefaultOnDown(s.Protocol) != lb.KeepFlows {
		r.Approximate(other.at, "has no %s; on_down is of all backends of a service, and keeps the flows of each", word)
	}
}

// realServer reads a backend.
func (r *reader) realServer(s *draft.Service, n *node, weight uint16) {
	b := lb.Backend{Port: s.Port, Weight: weight}
	var err error
	if b.Address, err = r.Address(n.word(1)); err == nil && n.word(2) != "" && n.word(2) != "0" {
		b.Port, err = draft.Port(s.Protocol.String(), n.word(2))
	}
	if err == nil && !r.sameMode(s, n.child(kindWords...)) {
		err = fmt.Errorf("a service has one mode, and this one's is %s; make a service of its own of this backend",
			s.Mode)
	}
	if err != nil {
		r.leave(n, err.Error())
		return
	}
	for _, c := range n.children {
		switch word := c.word(0); word {
		case "weight":
			weight, _, err := draft.Number(c.word(1), 65535)
			r.note(c, err)
			if err == nil {
				b.Weight = uint16(weight)
			}
		case "uthreshold", "lthreshold":
			n, _, err := draft.Number(c.word(1), 1<<28)
			r.note(c, err)
			if word == "uthreshold" {
				b.Upper = uint32(n)
			} else {
				b.Lower = uint32(n)
			}
		case "virtualhost", "delay_loop", "retry", "delay_before_retry":
			r.Carry(c.at)
		case "lvs_method", "lb_kind":
			r.Carry(c.at)
		default:
			if !isCheck(word) {
				r.other(c)
			}
		}
	}
	if b.Upper == 0 {
		b.Lower = 0
	} else if b.Lower == 0 { // IPVS's default
		b.Lower = (3*b.Upper + 3) / 4
	}
	r.Carry(n.at)
	s.Add(n.at, b)
}

// note carries a line over, or leaves it out if there is an error.
func (r *reader) note(c *node, err error) {
	if err != nil {
		r.Left(c.at, "%v", err)
		return
	}
	r.Carry(c.at)
}

// sorryServer adds a sorry server as a backup or, with the scheduler fo, as the last backend.
func (r *reader) sorryServer(s *draft.Service, c, virtual *node) {
	method := virtual.child("sorry_server_lvs_method")
	if !r.sameMode(s, method) {
		r.Left(c.at, "a service has one mode, and the backends of this one have %s; make a service of its own of the sorry server", s.Mode)
		r.Left(method.at, "of the sorry server, which is left out")
		return
	}
	if method != nil {
		r.Carry(method.at)
	}
	if inhibit := virtual.child("sorry_server_inhibit"); inhibit != nil {
		r.passOver(inServer, inhibit)
	}
	b := lb.Backend{Port: s.Port, Weight: 1, Backup: s.Scheduler != lb.Failover}
	var err error
	if b.Address, err = r.Address(c.word(1)); err == nil && c.word(2) != "" {
		b.Port, err = draft.Port(s.Protocol.String(), c.word(2))
	}
	if err != nil {
		r.Left(c.at, "%v", err)
		return
	}
	if s.Checks.On() {
		r.Approximate(c.at, "becomes a backup, which is checked like the other backends; keepalived does not check it")
	} else {
		r.Carry(c.at)
	}
	s.Add(c.at, b)
}

// other remarks on statements of virtual and real servers that have no counterpart.
func (r *reader) other(c *node) {
	switch c.word(0) {
	case "notify_up", "notify_down", "quorum_up", "quorum_down":
		r.leave(c, "Jeoul runs no program when a backend comes or goes; watch its events, or its metrics")
	case "quorum", "hysteresis":
		if c.word(0) == "quorum" && c.word(1) == "1" {
			r.Needless(c.at, "a service serves while a backend does, as without it")
			return
		}
		r.leave(c, "Jeoul has no quorum; panic says below which share of healthy backends all are used")
	case "ops":
		r.Approximate(c.at,
			"by ops IPVS chooses anew for each datagram; here all of a client's address and port go to one backend while they follow each other")
	default:
		r.passOver(inServer, c)
	}
}
