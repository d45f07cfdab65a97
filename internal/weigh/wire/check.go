// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net"
	"slices"
)

// withDefaults sets the fields that a spec leaves out, and rejects an impossible spec.
func (s Spec) withDefaults() (Spec, error) {
	wrong := func(format string, args ...any) (Spec, error) {
		return Spec{}, fmt.Errorf("%w: %s", ErrSpec, fmt.Sprintf(format, args...))
	}
	if s.Reply == "" {
		s.Reply = ReplyToSender
	}
	if s.SourcePorts == [2]uint16{} {
		s.SourcePorts = [2]uint16{1024, 65535}
	}
	if s.ServerPort == 0 {
		s.ServerPort = s.Target.Port()
	}
	if s.Batch == 0 {
		s.Batch = DefaultBatch
	}
	switch {
	case len(s.Clients) > MaxPorts || len(s.Servers) > MaxPorts:
		return wrong("%d client ports and %d server ports; at most %d of each", len(s.Clients),
			len(s.Servers), MaxPorts)
	case len(s.Clients)+len(s.Servers) == 0:
		return wrong("no port: it needs client ports, server ports or both")
	case !s.Target.IsValid() || !s.Target.Addr().Is4() || s.Target.Port() == 0:
		return wrong("target %v is no IPv4 address with a port", s.Target)
	case s.Reply != ReplyDirect && s.Reply != ReplyToSender:
		return wrong("replies %q; use %q or %q", s.Reply, ReplyDirect, ReplyToSender)
	case s.SourcePorts[0] == 0 || s.SourcePorts[1] < s.SourcePorts[0]:
		return wrong("source ports %d to %d; use a first one of 1 or more and a last one not below it",
			s.SourcePorts[0], s.SourcePorts[1])
	case s.Batch < 1 || s.Batch > 256:
		return wrong("batches of %d frames; use 1 to 256", s.Batch)
	case len(s.Clients) > 0 && (len(s.Next) == 0 || len(s.Next) > MaxPorts):
		return wrong("%d MAC addresses to send to; client ports need 1 to %d", len(s.Next), MaxPorts)
	case slices.ContainsFunc(s.Next, func(mac net.HardwareAddr) bool { return len(mac) != 6 || mac[0]&1 != 0 }):
		return wrong("%v are no MAC addresses of single devices", s.Next)
	}
	for _, p := range s.Clients {
		if !p.Sources.IsValid() || !p.Sources.Addr().Is4() {
			return wrong("client port %s: sources %v are no IPv4 prefix", p, p.Sources)
		}
		if p.Sources.Contains(s.Target.Addr()) {
			return wrong("client port %s: its sources %v contain the target %v", p, p.Sources, s.Target.Addr())
		}
	}
	if err := s.overlap(); err != nil {
		return Spec{}, err
	}
	for _, p := range s.Servers {
		if p.Address.IsValid() && !p.Address.Is4() {
			return wrong("server port %s: %v is no IPv4 address", p, p.Address)
		}
	}
	for point, vip := range s.DSCP {
		if point > 63 || !vip.Is4() {
			return wrong("DSCP %d for %v: code points are 0 to 63, and stand for an IPv4 address", point, vip)
		}
	}
	return s.withConnections()
}

// overlap rejects client ports that would send from the same addresses.
func (s Spec) overlap() error {
	for i, p := range s.Clients {
		for _, q := range s.Clients[:i] {
			if p.Sources.Overlaps(q.Sources) {
				return fmt.Errorf("%w: client ports %s and %s: sources %v and %v overlap", ErrSpec, q, p, q.Sources,
					p.Sources)
			}
		}
	}
	return nil
}

// withConnections sets the number of connections that can be told apart, and rejects an impossible number.
func (s Spec) withConnections() (Spec, error) {
	if len(s.Clients) == 0 {
		s.Connections = 1
		return s, nil
	}
	tuples := s.tuples()
	if s.Connections == 0 {
		s.Connections = min(DefaultConnections, tuples)
	}
	switch {
	case s.Connections < 0 || s.Connections > MaxConnections:
		return Spec{}, fmt.Errorf("%w: %d connections at a time; use 1 to %d", ErrSpec, s.Connections, MaxConnections)
	case s.Connections > tuples:
		return Spec{},
			fmt.Errorf("%w: %d connections at a time, but %d client ports with %d addresses each and ports %d to %d give %d; add addresses or ports",
				ErrSpec, s.Connections, len(s.Clients), s.addresses(), s.SourcePorts[0], s.SourcePorts[1], tuples)
	}
	return s, nil
}

// addresses returns the number of addresses of each client port that are used: as many as the port with the fewest has.
func (s Spec) addresses() int {
	fewest := 1 << 24
	for _, p := range s.Clients {
		_, n := p.usable()
		fewest = min(fewest, n)
	}
	return fewest
}

// tuples returns the number of possible connections to one target.
func (s Spec) tuples() int {
	return len(s.Clients) * s.addresses() * (int(s.SourcePorts[1]) - int(s.SourcePorts[0]) + 1)
}

// usable returns a client port's first address, as a number, and how many follow.
func (p Port) usable() (first uint32, n int) {
	first = number(p.Sources.Masked().Addr())
	n = 1 << (32 - p.Sources.Bits())
	if n > 2 {
		return first + 1, n - 2
	}
	return first, n
}

// String returns the port's name with its interface.
func (p Port) String() string {
	if p.Name != "" && p.Name != p.Interface {
		return fmt.Sprintf("%s (%s)", p.Name, p.Interface)
	}
	return p.Interface
}
