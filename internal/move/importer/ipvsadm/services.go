// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// The defaults of ipvsadm (ipvsadm(8)).
const (
	defaultScheduler   = "wlc"
	defaultPersistence = 300 * time.Second
	// UsualUDP is IPVS's default idle timeout of a UDP flow.
	UsualUDP = 300 * time.Second
	// guePort is the UDP port that mode gue sends to.
	guePort = "6080"
	// maxWeight and maxThreshold are Jeoul's limits.
	maxWeight    = 65535
	maxThreshold = 1 << 28
)

// setService adds a service, or changes one.
func (r *reader) setService(at remark.At, o options) {
	switch o.kind {
	case "f":
		r.Left(at, "a service by firewall mark: which VIPs and ports it has only the rules know that set the mark; write a service for each, with one persistence.group where they shall share clients")
		return
	case "sctp":
		r.Left(at, "Jeoul balances TCP and UDP; keep IPVS for SCTP")
		return
	case "":
		r.Left(at, "names no service (-t, -u or -f)")
		return
	}
	s, known := r.services[o.kind+o.service]
	if !known {
		s = &service{Service: &draft.Service{At: at}, spec: o.kind + o.service, places: map[netip.AddrPort]int{}}
		if err := r.place(s, o); err != nil {
			r.Left(at, "%v", err)
			return
		}
		r.services[s.spec] = s
		r.order = append(r.order, s)
	}
	r.Carry(at)
	s.at, s.scheduler, s.flags = at, cmp.Or(o.scheduler, defaultScheduler), o.flags
	r.persist(at, s, o)
	if o.onePacket {
		r.Approximate(at,
			"by -o IPVS chooses anew for each datagram; here all of a client's address and port go to one backend while they follow each other")
	}
}

// place reads the address, port and protocol of a service.
func (r *reader) place(s *service, o options) error {
	s.Protocol = lb.TCP
	if o.kind == "u" {
		s.Protocol = lb.UDP
	}
	host, port := draft.SplitPort(o.service)
	addr, err := r.Address(host)
	if err != nil {
		return err
	}
	if port == "" || port == "0" {
		return fmt.Errorf("a service of all ports of %s; write one for each port, with one persistence.group", addr)
	}
	s.VIP = addr
	s.Port, err = draft.Port(s.Protocol.String(), port)
	return err
}

// persist reads -p and -M.
func (r *reader) persist(at remark.At, s *service, o options) {
	s.Persistence = lb.Persistence{}
	if o.engine != "" {
		r.Left(at, "--pe %s: Jeoul knows clients by their addresses alone", o.engine)
	}
	if o.timeout == "" {
		return
	}
	s.Persistence.Timeout = defaultPersistence
	if o.timeout != "default" {
		seconds, _, err := draft.Number(o.timeout, 1<<31)
		if err != nil || seconds == 0 {
			r.Left(at, "-p %s is no number of seconds, so the persistence is of %s", o.timeout, defaultPersistence)
		} else {
			s.Persistence.Timeout = time.Duration(seconds) * time.Second
		}
	}
	if longest := 24 * time.Hour; s.Persistence.Timeout > longest {
		r.Approximate(at, "a persistence of %s is longer than the %s that Jeoul remembers a client",
			s.Persistence.Timeout, longest)
		s.Persistence.Timeout = longest
	}
	if o.netmask != "" {
		prefix, err := PrefixOf(o.netmask)
		if err != nil {
			r.Left(at, "-M: %v, so each address is a client", err)
		}
		s.Persistence.Prefix = prefix
	}
}

// PrefixOf reads a netmask of persistence: an address for IPv4, a number of bits for IPv6.
func PrefixOf(text string) (uint8, error) {
	if n, err := strconv.ParseUint(text, 10, 8); err == nil && n >= 1 && n <= 128 {
		return uint8(n), nil
	}
	ones := draft.MaskLength(text)
	if ones < 1 {
		return 0, fmt.Errorf("%q is no mask of leading bits", text)
	}
	return uint8(ones), nil
}

// setServer adds a backend, or changes one.
func (r *reader) setServer(at remark.At, o options) {
	s := r.of(at, o)
	if s == nil {
		return
	}
	b, err := r.server(s, o)
	if err != nil {
		r.Left(at, "%v", err)
		return
	}
	mode, why := modeOf(o)
	switch {
	case why != "" && mode == "":
		r.Left(at, "%s", why)
		return
	case why != "":
		r.Approximate(at, "%s", why)
	}
	if s.Mode == "" {
		s.Mode = mode
	} else if s.Mode != mode && r.Mode == "" {
		r.Left(at, "a service has one mode, and this one's first backend has %s, not %s; give --mode, or make a service of its own of it", s.Mode, mode)
		return
	}
	if err := r.bound(at, &b, o); err != nil {
		r.Left(at, "%v", err)
		return
	}
	r.Carry(at)
	place := netip.AddrPortFrom(b.Address, b.Port)
	if j, there := s.places[place]; there {
		s.Backends[j], s.BackendAt[j] = b, at
		return
	}
	s.places[place] = len(s.Backends)
	s.Add(at, b)
}

// server reads the address and port of a backend. The default is the service's port.
func (r *reader) server(s *service, o options) (lb.Backend, error) {
	host, port := draft.SplitPort(o.server)
	addr, err := r.Address(host)
	if err != nil {
		return lb.Backend{}, err
	}
	b := lb.Backend{Address: addr, Port: s.Port, Weight: 1}
	if port != "" && port != "0" {
		b.Port, err = draft.Port(s.Protocol.String(), port)
	}
	return b, err
}

// modeOf returns the mode of a backend. why describes the difference from IPVS or, if mode is empty, the reason why
// there is no mode.
func modeOf(o options) (mode lb.Mode, why string) {
	switch o.mode {
	case "m":
		return lb.NAT, ""
	case "", "g":
		return lb.L2DSR, ""
	}
	switch o.tunType {
	case "", "ipip":
		return lb.IPIP, ""
	case "gue":
		if o.tunPort != "" && o.tunPort != guePort {
			return lb.GUE,
				fmt.Sprintf("Jeoul sends GUE to UDP port %s, and this backend takes it at %s; change that there",
					guePort, o.tunPort)
		}
		return lb.GUE, ""
	}
	return "", fmt.Sprintf("Jeoul has no tunnel of type %s; use ipip or gue", o.tunType)
}

// bound reads a backend's weight and thresholds. Without a lower threshold, IPVS gives a full backend new connections
// again below three quarters of the upper threshold.
func (r *reader) bound(at remark.At, b *lb.Backend, o options) error {
	if o.weight != "" {
		weight, cut, err := draft.Number(o.weight, maxWeight)
		if err != nil {
			return fmt.Errorf("-w: %w", err)
		}
		if cut {
			r.Approximate(at, "weights go up to %d; divide all of the service by the same number", maxWeight)
		}
		b.Weight = uint16(weight)
	}
	upper, _, err := draft.Number(cmp.Or(o.upper, "0"), maxThreshold)
	if err != nil {
		return fmt.Errorf("-x: %w", err)
	}
	lower, _, err := draft.Number(cmp.Or(o.lower, "0"), maxThreshold)
	if err != nil {
		return fmt.Errorf("-y: %w", err)
	}
	switch {
	case upper == 0 && lower > 0:
		r.Approximate(at, "without -x no backend is full, so -y says nothing")
		lower = 0
	case upper > 0 && lower == 0:
		lower = (3*upper + 3) / 4
	}
	if lower == upper { // the default without a lower threshold
		lower = 0
	}
	b.Upper, b.Lower = uint32(upper), uint32(lower)
	return nil
}

// setTimeouts reads --set TCP TCPFIN UDP, in seconds; 0 keeps a timeout unchanged.
func (r *reader) setTimeouts(at remark.At, o options) {
	if len(o.values) != 3 {
		r.Left(at, "--set has three timeouts")
		return
	}
	bounds := []time.Duration{168 * time.Hour, time.Hour, 24 * time.Hour}
	for i, into := range []*time.Duration{&r.Timeouts.Established, &r.Timeouts.Fin, &r.Timeouts.UDP} {
		seconds, _, err := draft.Number(o.values[i], 1<<31)
		if err != nil {
			r.Left(at, "%v", err)
			return
		}
		if *into = time.Duration(seconds) * time.Second; *into > bounds[i] {
			r.Approximate(at, "%s is longer than the %s that Jeoul remembers a silent flow", *into, bounds[i])
			*into = bounds[i]
		}
	}
	r.Carry(at)
}
