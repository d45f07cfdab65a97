// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Random packets that belong together, and random changes.

// clientFlow is a client's flow, and how far it has come.
type clientFlow struct {
	service lb.ServiceKey
	client  netip.AddrPort
	// sent is how many packets there were since it began.
	sent int
	// isn is the sequence number of the SYN that it began with.
	isn uint32
}

// The conversations that go on at a time.
const maxClientFlows = 60

// nextPacket is the next packet of a conversation, mostly one that was to be expected.
func (g *generator) nextPacket() packetSpec {
	if len(g.under) < maxClientFlows || g.IntN(20) == 0 {
		g.begin()
	}
	c := g.under[g.IntN(len(g.under))]
	for range 3 {
		// Rare events are most likely where something has just happened.
		if c.service != g.struck {
			c = g.under[g.IntN(len(g.under))]
		}
	}
	flags := c.flags(g)
	return packetSpec{from: c.client.Addr(), at: c.service.VIP, sport: c.client.Port(), dport: c.service.Port,
		udp:   c.service.Protocol == lb.UDP,
		flags: flags, seq: c.sequence(g, flags), payload: g.size(), tcpOptions: g.tcpOptions(), tos: byte(g.Uint32()),
		df: g.IntN(2) == 0, id: uint16(g.ids)}
}

// begin adds a conversation, in the place of another where there are enough.
func (g *generator) begin() {
	s := g.busyService()
	c := &clientFlow{service: s.Key(), client: netip.AddrPortFrom(g.client(s.VIP.Is6()), uint16(100+g.IntN(400)))}
	if g.IntN(6) == 0 { // a stranger in the middle of a flow
		c.sent = 1 + g.IntN(4)
	}
	if len(g.under) < maxClientFlows {
		g.under = append(g.under, c)
	} else {
		g.under[g.IntN(len(g.under))] = c
	}
}

// busyService is mostly one of a few, which get enough flows to meet their limits.
func (g *generator) busyService() *lb.RoutedService {
	if len(g.busy) == 0 || g.IntN(100) == 0 {
		g.busy = nil
		for range 4 {
			g.busy = append(g.busy, g.anyService().Key())
		}
	}
	if s := g.model.services[g.busy[g.IntN(len(g.busy))]]; s != nil && g.IntN(6) > 0 {
		return s
	}
	return g.anyService()
}

// flags are those of a conversation's next packet.
func (c *clientFlow) flags(g *generator) string {
	c.sent++
	switch {
	case c.sent == 1:
		if g.IntN(8) > 0 {
			c.isn = g.Uint32()
		}
		return "S"
	case c.sent > 2 && g.IntN(25) == 0:
		// The port is used again, and the end of the last connection was not seen.
		c.sent, c.isn = 1, g.Uint32()
		return "S"
	case c.sent == 2:
		return []string{"A", "A", "A", "S", "FA", "R"}[g.IntN(6)]
	case c.sent < 5:
		return []string{"A", "PA"}[g.IntN(2)]
	case g.IntN(6) == 0:
		// The last but a few; the port is used again.
		c.sent = -g.IntN(3)
		return []string{"FA", "FA", "R", "FPA", "RA"}[g.IntN(5)]
	case c.sent < 1 || g.IntN(30) == 0:
		return g.flags()
	}
	return []string{"A", "PA", "A", "PA", "SA"}[g.IntN(5)]
}

// sequence is the sequence number of a conversation's next packet.
func (c *clientFlow) sequence(g *generator, flags string) uint32 {
	switch n := g.IntN(16); {
	case n == 0:
		return g.Uint32()
	case n < 4:
		return c.isn + uint32(g.IntN(1<<17))
	case flags == "S":
		return c.isn
	}
	return c.isn + 1
}

// answer is a reply in a conversation by NAT, by the backend that has it or by another.
func (g *generator) answer() (p packetSpec, ok bool) {
	if len(g.under) == 0 || g.IntN(3) == 0 {
		return p, false
	}
	for range 8 {
		c := g.under[g.IntN(len(g.under))]
		s := g.model.services[c.service]
		if s == nil || s.Mode != lb.NAT || len(s.Backends) == 0 {
			continue
		}
		b := s.Backends[g.IntN(len(s.Backends))]
		if e := g.model.lookUp(g.model.flowOf(s, clientPacket{client: c.client})); e != nil && g.model.valid(e) &&
			g.IntN(5) > 0 {
			_, i := g.model.find(e.backend)
			b = s.Backends[i]
		}
		return packetSpec{from: b.Address, at: c.client.Addr(), sport: b.Port, dport: c.client.Port(),
			udp:   s.Protocol == lb.UDP,
			flags: []string{"SA", "A", "PA", "FA", "FA", "R", "FR"}[g.IntN(7)], payload: g.size(), df: g.IntN(2) == 0,
			id: uint16(g.ids)}, true
	}
	return p, false
}

// change returns a configuration that differs from another one in its services,
// their backends and, at times, their modes.
func (g *generator) change(last lb.State) lb.State {
	fresh := allKinds()
	next := lb.State{Pool: last.Pool}
	if g.IntN(4) == 0 {
		next.Pool = g.dividedPool(fresh.Pool)
	}
	for _, s := range fresh.Services {
		old := slices.IndexFunc(last.Services, func(o lb.RoutedService) bool { return o.Key() == s.Key() })
		switch n := g.IntN(10); {
		case old < 0 && n < 5:
			continue
		case old >= 0 && n < 6: // as before
			s = last.Services[old]
		case old >= 0 && n < 9:
			s = last.Services[old]
			s.Backends, s.Paths = slices.Clone(s.Backends), slices.Clone(s.Paths)
			g.mutate(&s)
		case old >= 0 && g.IntN(4) == 0: // all of it leaves
			continue
		}
		if s.Mode == lb.NAT && g.IntN(6) == 0 {
			s.Untranslated = g.networks(s.VIP.Is6())
		}
		g.setClients(&s)
		next.Services = append(next.Services, s)
	}
	return next
}

// dividedPool is a pool of which the second address of each family may be another balancer's.
func (g *generator) dividedPool(pool lb.Pool) lb.Pool {
	if g.IntN(2) == 0 {
		pool.Others = []netip.Addr{pool.Addresses[1], pool.Addresses[3]}
		pool.Addresses = []netip.Addr{pool.Addresses[0], pool.Addresses[2]}
	}
	return pool
}

// disruptBackend returns a configuration in which something has happened to the backend of a conversation, or in which
// an earlier such event is over.
func (g *generator) disruptBackend(last lb.State) (next lb.State, ok bool) {
	if len(g.under) == 0 {
		return last, false
	}
	c := g.under[g.IntN(len(g.under))]
	at := slices.IndexFunc(last.Services, func(s lb.RoutedService) bool { return s.Key() == c.service })
	if at < 0 {
		return last, false
	}
	next = lb.State{Services: slices.Clone(last.Services), Pool: last.Pool}
	s := &next.Services[at]
	s.Backends, s.Paths = slices.Clone(s.Backends), slices.Clone(s.Paths)
	g.struck = c.service
	backend := g.IntN(len(s.Backends))
	if e := g.model.lookUp(g.model.flowOf(s, clientPacket{client: c.client})); e != nil && g.model.valid(e) {
		_, backend = g.model.find(e.backend)
	}
	switch g.IntN(10) {
	case 0, 1:
		if backend < len(s.Paths) {
			s.Paths[backend].MAC = nil
		}
	case 8, 9:
		s.Observed = s.Observed.With(backend, lb.Observed{Unhealthy: "refuses connections"})
		s.Checks.OnDown = []lb.OnDown{lb.KeepFlows, lb.ResetFlows, lb.MoveFlows}[g.IntN(3)]
	case 2, 3:
		s.Backends[backend].Draining = true
	case 4:
		s.Backends[backend].Weight = 0
	case 5:
		s.Backends[backend].Upper, s.Backends[backend].Lower = 1, 0
	default:
		for i := range s.Backends {
			s.Backends[i].Draining, s.Backends[i].Weight, s.Backends[i].Upper, s.Backends[i].Lower = false,
				max(1, s.Backends[i].Weight), 0, 0
			s.Observed = nil
			if i < len(s.Paths) && s.Paths[i].MAC == nil {
				s.Paths[i].MAC = []byte{2, 6, 6, 6, byte(g.Uint32()), byte(i)}
			}
		}
	}
	return next, true
}

// mutate changes something about a service.
func (g *generator) mutate(s *lb.RoutedService) {
	some := g.IntN(len(s.Backends))
	switch g.IntN(17) {
	case 0: // one leaves
		if len(s.Backends) > 1 {
			s.Backends, s.Paths = slices.Delete(s.Backends, some, some+1),
				slices.Delete(s.Paths, min(some, len(s.Paths)), min(some+1, len(s.Paths)))
			s.Observed = s.Observed.Without(some)
		}
	case 1: // one is lost from sight
		if some < len(s.Paths) {
			s.Paths[some].MAC = nil
		}
	case 2, 3: // all are seen
		for i := range s.Paths {
			if s.Paths[i].MAC == nil {
				s.Paths[i].MAC = []byte{2, 7, 7, 7, byte(g.Uint32()), byte(i)}
			}
		}
	case 4: // one takes no new flows
		s.Backends[some].Weight = 0
	case 5:
		s.Backends[some].Draining = !s.Backends[some].Draining
	case 6:
		s.Backends[some].Weight = uint16(1 + g.IntN(9))
	case 7: // in another way
		if s.Mode != lb.FullNAT && s.Port != portIPIPCross && s.Port != portGUECross {
			s.Mode = []lb.Mode{lb.L2DSR, lb.IPIP, lb.GUE, lb.DSCP, lb.NAT}[g.IntN(5)]
			s.DSCP, s.MSS = uint8(1+g.IntN(63)), uint16(536+g.IntN(1000))
		}
	case 8:
		s.Scheduler = lb.Schedulers[g.IntN(len(lb.Schedulers))]
	case 9:
		upper := uint32(g.IntN(8))
		bound(s, upper, uint32(g.IntN(int(upper)+1)))
	case 10:
		s.Limits = lb.Limits{Rate: []uint32{0, 0, 20, 200}[g.IntN(4)], Burst: uint32(g.IntN(3)),
			Connections: uint32(g.IntN(3) * 10),
			Refuse:      []lb.Refusal{lb.RefuseByDrop, lb.RefuseByReset}[g.IntN(2)]}
	case 11, 12: // one comes
		if len(s.Paths) == len(s.Backends) && len(s.Backends) < 100 {
			b, path := s.Backends[len(s.Backends)-1], s.Paths[len(s.Paths)-1]
			b.Address, b.Weight, b.Draining = b.Address.Next(), uint16(g.IntN(5)), false
			path.MAC = []byte{2, 8, 8, 8, byte(g.Uint32()), 1}
			s.Observed = s.Observed.With(len(s.Backends), s.Observed.Of(len(s.Backends)-1)) // as b is of the last
			s.Backends, s.Paths = append(s.Backends, b), append(s.Paths, path)
		}
	case 13:
		switch {
		case s.Persistence.On():
			s.Persistence = lb.Persistence{}
		case g.IntN(2) == 0:
			shareAffinity(s)
		default:
			persist(s, uint8(20+g.IntN(13)), uint8(100+g.IntN(29)))
		}
	case 14:
		s.Transition.Window = []time.Duration{0, 10 * time.Second, time.Minute}[g.IntN(3)]
	case 16:
		s.Observed = s.Observed.With(some, lb.Observed{Unhealthy: []string{"", "refuses connections"}[g.IntN(2)]})
	case 15:
		s.TableSize = []uint32{0, 127, 251}[g.IntN(3)]
	}
}

// setClients has a service allow or deny some clients, now and then, and mostly all again.
func (g *generator) setClients(s *lb.RoutedService) {
	switch g.IntN(40) {
	case 0:
		s.Allow, s.Deny = g.networks(s.VIP.Is6()), g.networks(s.VIP.Is6())
		s.Deny = slices.DeleteFunc(s.Deny, func(p netip.Prefix) bool { return slices.Contains(s.Allow, p) })
	case 1, 2, 3, 4, 5, 6:
		s.Allow, s.Deny = nil, nil
	}
}

// networks are of some of the clients.
func (g *generator) networks(six bool) (list []netip.Prefix) {
	for range g.IntN(4) {
		client := g.client(six)
		bits := client.BitLen() - []int{0, 1, 8, 16, client.BitLen()}[g.IntN(5)]
		list = append(list, netip.PrefixFrom(client, bits).Masked())
	}
	return list
}
