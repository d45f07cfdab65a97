// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// sharing are services of one group: SIP over UDP and TCP by two schedulers, and over TLS by
// NAT, whose backends have other ports and another order, and are one more.
func sharing(six bool) lb.State {
	vip := vip4
	if six {
		vip = vip6
	}
	udp, tcp := testService(vip, 5060, lb.UDP, lb.RoundRobin, 3), testService(vip, 5060, lb.TCP, lb.LeastConnections, 3)
	tls := testService(vip, 5061, lb.TCP, lb.RoundRobin, 4)
	tls.Mode = lb.NAT
	addBackends(&tls, 4, 6061, six)
	slices.Reverse(tls.Backends)
	slices.Reverse(tls.Paths)
	state := lb.State{Services: []lb.RoutedService{udp, tcp, tls}}
	for i := range state.Services {
		shareAffinity(&state.Services[i])
	}
	return state
}

// altered copies the state with service i changed.
func altered(state lb.State, i int, change func(s *lb.RoutedService)) lb.State {
	state.Services = slices.Clone(state.Services)
	s := &state.Services[i]
	s.Backends, s.Paths = slices.Clone(s.Backends), slices.Clone(s.Paths)
	change(s)
	return state
}

// groupClient opens flows of one client, each from a port of its own.
type groupClient struct {
	t     *testing.T
	r     *rig
	from  netip.Addr
	sport uint16
}

// host is where the client's next flow to a service goes; proven says that it goes on.
func (v *groupClient) host(service int, proven bool) netip.Addr {
	v.t.Helper()
	s := &v.r.model.state.Services[service]
	v.sport++
	p := packetSpec{from: v.from, at: s.VIP, sport: v.sport, dport: s.Port, udp: s.Protocol == lb.UDP, flags: "S"}
	got := expectOutcome(v.t, v.r, p.build(v.t), "forwarded")
	if proven {
		p.flags = "A"
		expectOutcome(v.t, v.r, p.build(v.t), "forwarded")
	}
	return got.backend.Address
}

// start is the host of a client that begins with a service. It must not be the one that only the last service has.
func (v *groupClient) start(service int) netip.Addr {
	v.t.Helper()
	at := v.host(service, true)
	if at == v.r.model.state.Services[2].Backends[0].Address {
		return v.host(0, true)
	}
	return at
}

// expectHost says that the client's flows go to a host by every service.
func (v *groupClient) expectHost(at netip.Addr, when string) {
	v.t.Helper()
	for i := range v.r.model.state.Services {
		if got := v.host(i, true); got != at {
			v.t.Errorf("%s: by %s %v goes to %v, want %v", when, v.r.model.state.Services[i].Name, v.from, got, at)
		}
	}
}

// eachFamily runs a test in both hooks with the services of a group, for each family.
func eachFamily(t *testing.T, test func(v *groupClient)) {
	for _, six := range []bool{false, true} {
		oneHook(t, func(t *testing.T, hook lb.Hook) {
			r := newRig(t, hook, sharing(six))
			test(&groupClient{t: t, r: r, from: clientOf(0, six, 17), sport: 1000})
			if problem := r.compareAll(t); problem != "" {
				t.Error(problem)
			}
		})
	}
}

// TestGroup: a client's flows go to one host by all services of a group, whichever it comes
// to first, and others of its prefix go there too.
func TestGroup(t *testing.T) {
	eachFamily(t, func(v *groupClient) {
		clients := map[netip.Addr]bool{}
		for number := byte(16); number < 240; number += 16 {
			v.from = clientOf(0, v.from.Is6(), number)
			at := v.start(int(number/16) % 3)
			clients[at] = true
			v.expectHost(at, "at first")
			v.from = v.from.Next()
			v.expectHost(at, "as a neighbour")
		}
		if len(clients) < 3 {
			v.t.Errorf("all clients are at %v", clients)
		}
	})
}

// TestGroupRemembers: an affinity lasts for the timeout from the last flow by any of the services; after a first packet
// alone it lasts for less.
func TestGroupRemembers(t *testing.T) {
	eachFamily(t, func(v *groupClient) {
		at := v.host(0, true)
		for i := range 6 {
			v.r.advance(v.t, 2*time.Minute)
			if got := v.host(i%3, true); got != at {
				v.t.Errorf("after %d minutes %v is at %v, was at %v", 2*(i+1), v.from, got, at)
			}
		}
		v.r.advance(v.t, 3*time.Minute+2*time.Second)
		v.expectEntries(0)
		v.host(1, false)
		v.expectEntries(1)
		v.r.advance(v.t, testTimeouts.Opening+2*time.Second)
		v.expectEntries(0)
	})
}

// expectEntries counts the clients' affinities in the program's own tables.
func (v *groupClient) expectEntries(want int) {
	v.t.Helper()
	got := 0
	for table := range 2 {
		for _, b := range v.r.buckets(table) {
			for place := range b.Flows {
				if b.Tags[place/4]>>(place%4*16)&0xffff > 1 && b.Flows[place].Service&flowtable.GroupKey != 0 {
					got++
				}
			}
		}
	}
	if got != want {
		v.t.Errorf("%d clients are remembered, want %d", got, want)
	}
}

// TestGroupMoves: a host that takes no new flows by one service is left, by all of them; one
// that leaves a service is left by that service's clients; one that comes is known.
func TestGroupMoves(t *testing.T) {
	eachFamily(t, func(v *groupClient) {
		at, whole := v.start(2), v.r.model.state
		v.expectHost(at, "at first")
		of := func(s *lb.RoutedService) int {
			return slices.IndexFunc(s.Backends, func(b lb.Backend) bool { return b.Address == at })
		}
		v.r.apply(v.t, altered(whole, 1, func(s *lb.RoutedService) { s.Backends[of(s)].Draining = true }))
		next := v.host(1, true)
		if next == at {
			v.t.Errorf("%v goes to %v, which drains", v.from, next)
		}
		v.expectHost(next, "after the drain")
		at = next
		v.r.apply(v.t, altered(whole, 0, func(s *lb.RoutedService) {
			i := of(s)
			s.Backends, s.Paths = slices.Delete(s.Backends, i, i+1), slices.Delete(s.Paths, i, i+1)
		}))
		if got := v.host(1, true); got != at {
			v.t.Errorf("a service that still has the host sends its client to %v, from %v", got, at)
		}
		next = v.host(0, true)
		v.expectHost(next, "after the host left")
		v.r.apply(v.t, whole)
		v.expectHost(next, "after the host came back")
	})
}

// TestGroupEnds: services leave a group and join it; with the last one it ends, and its affinities with it. A group of
// the same name is another one then.
func TestGroupEnds(t *testing.T) {
	eachFamily(t, func(v *groupClient) {
		at, whole := v.host(0, true), v.r.model.state
		v.expectHost(at, "at first")
		alone := altered(whole, 1, func(s *lb.RoutedService) { s.Persistence.Group = "" })
		v.r.apply(v.t, alone)
		if got := v.host(2, true); got != at {
			v.t.Errorf("when another service left the group, the client went from %v to %v", at, got)
		}
		v.r.apply(v.t, whole)
		v.expectHost(at, "when it came back")
		without := whole
		for i := range whole.Services {
			without = altered(without, i, func(s *lb.RoutedService) { s.Persistence.Group = "" })
		}
		id := v.r.datapath.register.Places.Groups[whole.Services[0].Persistence.Group].ID
		v.r.apply(v.t, without)
		v.r.advance(v.t, time.Second)
		v.expectEntries(0)
		v.r.apply(v.t, whole)
		if again := v.r.datapath.register.Places.Groups[whole.Services[0].Persistence.Group].ID; again == id {
			v.t.Errorf("the group has the id of the one before it, %d", id)
		}
		v.expectHost(v.host(0, true), "in the new group")
	})
}

// TestHosts looks hosts up as the program does: all of them are found within the probes, and
// no other.
func TestHosts(t *testing.T) {
	for _, six := range []bool{false, true} {
		for _, n := range []int{0, 1, 2, 3, 100, 5000} {
			s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1)
			shareAffinity(&s)
			addBackends(&s, n, 80, six)
			r := &generation.Record{Service: s, Group: 7}
			for i := range n {
				r.Places = append(r.Places, generation.Place{Index: uint32(1000 + i), Generation: uint16(1 + i%7)})
			}
			hosts := r.Hosts()
			if hosts[0] != (objects.XDPHost{Number: uint64(len(hosts) - 1), Index: 7}) ||
				len(hosts)-1 != int(mapmem.PowerOfTwo(len(hosts)-1)) {
				t.Fatalf("%d hosts: %d places, headed by %+v", n, len(hosts)-1, hosts[0])
			}
			for i, b := range s.Backends {
				want := objects.XDPHost{Number: hostOf(b.Address), Index: r.Places[i].Index,
					Generation: r.Places[i].Generation}
				if got := findHost(hosts, want.Number); got != want {
					t.Fatalf("%d hosts: %v is %+v, want %+v", n, b.Address, got, want)
				}
			}
			if got := findHost(hosts, hostOf(client4)); got != (objects.XDPHost{}) {
				t.Errorf("%d hosts: a client is %+v", n, got)
			}
		}
	}
}

func findHost(hosts []objects.XDPHost, number uint64) objects.XDPHost {
	home := uint32(number * multiplier >> 32)
	for probe := range uint32(8) {
		if h := hosts[1+(home+probe)&uint32(len(hosts)-2)]; h.Number == number || h.Number == 0 {
			return h
		}
	}
	return objects.XDPHost{}
}
