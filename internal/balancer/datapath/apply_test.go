// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// scaledState has so many services of so many backends each, all different.
func scaledState(services, backends int, scheduler lb.Scheduler) lb.State {
	var state lb.State
	for i := range services {
		s := lb.RoutedService{Service: lb.Service{
			Name: fmt.Sprintf("s%05d", i), VIP: netip.AddrFrom4([4]byte{198, 18, byte(100 + i>>8), byte(i)}), Port: 80,
			Protocol: lb.TCP, Mode: lb.L2DSR, Scheduler: scheduler,
		}}
		for n := range backends {
			at := uint32(i*backends + n)
			mac := net.HardwareAddr{2, 1, 0, 0, 0, 0}
			binary.BigEndian.PutUint32(mac[2:], at)
			s.Backends = append(s.Backends, lb.Backend{Name: fmt.Sprintf("web%06d", at),
				Address: netip.AddrFrom4([4]byte{10, byte(at >> 16), byte(at >> 8), byte(at)}), Port: 80, Weight: 1})
			s.Paths = append(s.Paths, lb.Path{MAC: mac, Source: balancerMAC})
		}
		state.Services = append(state.Services, s)
	}
	return state
}

// withWeight is the state with another weight of one backend. It shares the rest.
func withWeight(s lb.State, service, backend int, weight uint16) lb.State {
	s.Services = slices.Clone(s.Services)
	at := &s.Services[service]
	at.Backends = slices.Clone(at.Backends)
	at.Backends[backend].Weight = weight
	return s
}

// BenchmarkApply measures the time until packets go by a change of one backend, and that of the first configuration. A
// backend gets another weight, for which a table is filled again, or is removed and added again, for which a large one
// is not.
func BenchmarkApply(b *testing.B) {
	testenv.Root(b)
	for _, scale := range []struct{ services, backends int }{{10, 10}, {10_000, 10}, {10, 10_000}} {
		for _, change := range []struct {
			name      string
			scheduler lb.Scheduler
			weight    func(i int) uint16
		}{
			{"maglev/weight", lb.Maglev, func(i int) uint16 { return uint16(2 + i%3) }},
			{"maglev/out-and-in", lb.Maglev, func(i int) uint16 { return uint16(i % 2) }},
			{"rr/out-and-in", lb.RoundRobin, func(i int) uint16 { return uint16(i % 2) }},
		} {
			b.Run(fmt.Sprintf("%dx%d/%s", scale.services, scale.backends, change.name), func(b *testing.B) {
				state := scaledState(scale.services, scale.backends, change.scheduler)
				d := NewDetached(Options{Hook: lb.HookXDP}, balancerMAC)
				defer d.Close()
				began := time.Now()
				if err := d.Apply(state); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(time.Since(began).Milliseconds()), "first-ms")
				program := d.Program()
				var took []time.Duration
				b.ResetTimer()
				for i := range b.N {
					state = withWeight(state, i/2%scale.services, i/2*7%scale.backends, change.weight(i))
					began := time.Now()
					if err := d.Apply(state); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
				if d.Program() != program {
					b.Log("the program was loaded anew meanwhile")
				}
			})
		}
	}
}

// TestApplyInPlace changes the parts of a state, one after the other: only those changes load another program that
// cannot do without.
func TestApplyInPlace(t *testing.T) {
	first := testService(vip4, 80, lb.TCP, lb.Maglev, 5)
	second := testService(vip6, 80, lb.TCP, lb.RoundRobin, 5)
	r := newRig(t, lb.HookXDP, lb.State{Services: []lb.RoutedService{first, second}})
	send := func(t *testing.T) {
		for i := range 40 {
			p := []packetSpec{web4(), web6()}[i%2]
			p.sport = uint16(1000 + i)
			p.flags = []string{"S", "A"}[i/2%2]
			r.check(t, p.build(t))
		}
	}
	send(t)
	for _, change := range []struct {
		name string
		to   func(a, b *lb.RoutedService) []lb.RoutedService
		anew bool
	}{
		{"a backend down", func(a, b *lb.RoutedService) []lb.RoutedService {
			a.Paths[1].MAC = nil
			return []lb.RoutedService{*a, *b}
		}, false},
		{"and another weight", func(a, b *lb.RoutedService) []lb.RoutedService {
			a.Backends[2].Weight = 3
			return []lb.RoutedService{*a, *b}
		}, false},
		{"a backend less", func(a, b *lb.RoutedService) []lb.RoutedService {
			a.Backends, a.Paths = a.Backends[1:], a.Paths[1:]
			return []lb.RoutedService{*a, *b}
		}, false},
		{"no backend usable", func(a, b *lb.RoutedService) []lb.RoutedService {
			a.Paths = nil
			return []lb.RoutedService{*a, *b}
		}, false},
		{"all again, in another order", func(a, b *lb.RoutedService) []lb.RoutedService {
			return []lb.RoutedService{*b, *a}
		}, false},
		{"a larger table", func(a, b *lb.RoutedService) []lb.RoutedService {
			a.TableSize = 1021
			return []lb.RoutedService{*a, *b}
		}, false},
		{"another scheduler", func(a, b *lb.RoutedService) []lb.RoutedService {
			a.Scheduler, b.Scheduler = lb.RoundRobin, lb.Maglev
			return []lb.RoutedService{*a, *b}
		}, false},
		{"limits", func(a, b *lb.RoutedService) []lb.RoutedService {
			a.Limits, b.Backends[1].Upper = lb.Limits{Connections: 1 << 20, Refuse: lb.RefuseByReset}, 1<<20
			return []lb.RoutedService{*a, *b}
		}, false},
		{"more backends than there is room for", func(a, b *lb.RoutedService) []lb.RoutedService {
			large := testService(vip4, 81, lb.TCP, lb.Maglev, 700)
			large.TableSize = 8191
			return []lb.RoutedService{*a, *b, large}
		}, true},
		{"a service less", func(a, b *lb.RoutedService) []lb.RoutedService { return []lb.RoutedService{*b} }, false},
		{"a service more", func(a, b *lb.RoutedService) []lb.RoutedService {
			return []lb.RoutedService{*a, *b, testService(vip4, 81, lb.TCP, lb.Maglev, 7)}
		}, false},
		{"a scheduler more", func(a, b *lb.RoutedService) []lb.RoutedService {
			a.Scheduler = lb.LeastConnections
			return []lb.RoutedService{*a, *b}
		}, true},
		{"a scheduler less", func(a, b *lb.RoutedService) []lb.RoutedService { return []lb.RoutedService{*a, *b} }, false},
		{"a mode more", func(a, b *lb.RoutedService) []lb.RoutedService {
			a.Mode = lb.IPIP
			return []lb.RoutedService{*a, *b}
		}, true},
	} {
		t.Run(change.name, func(t *testing.T) {
			a, b := first, second
			a.Backends, a.Paths = slices.Clone(a.Backends), slices.Clone(a.Paths)
			b.Backends, b.Paths = slices.Clone(b.Backends), slices.Clone(b.Paths)
			program := r.datapath.Program()
			r.apply(t, lb.State{Services: change.to(&a, &b)})
			if anew := r.datapath.Program() != program; anew != change.anew {
				t.Errorf("the program was loaded anew: %t", anew)
			}
			send(t)
		})
	}
}

// TestTransitionSurvivesReload begins a transition and loads the program again: its flows go on where they were.
func TestTransitionSurvivesReload(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 5)
	r := newRig(t, lb.HookXDP, lb.State{Services: []lb.RoutedService{s}})
	fewer := s
	fewer.Backends, fewer.Paths = s.Backends[1:], s.Paths[1:]
	r.apply(t, lb.State{Services: []lb.RoutedService{fewer}})
	before := r.datapath.register.ByKey[s.Key()].View
	if before.Base == nil || before.Moved.Empty() {
		t.Fatalf("no transition: %+v", before)
	}
	program := r.datapath.Program()
	more := fewer
	more.Mode, more.MSS = lb.IPIP, 1340
	r.apply(t, lb.State{Services: []lb.RoutedService{more}})
	if r.datapath.Program() == program {
		t.Fatal("the program is the same: the test needs another")
	}
	after := r.datapath.register.ByKey[s.Key()].View
	if after.Base != before.Base || after.Moved != before.Moved || !after.Until.Equal(before.Until) {
		t.Error("the transition is another one")
	}
	for i := range 200 {
		p := web4()
		p.sport, p.flags = uint16(1000+i), "A"
		r.check(t, p.build(t))
	}
}

// TestDatapathFlaps loses a backend from sight and finds it again 100 times. Packets in the middle of flows go where
// they went before, and nothing is loaded again.
func TestDatapathFlaps(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.Maglev, 5)
	r := newRig(t, lb.HookXDP, lb.State{Services: []lb.RoutedService{s}})
	program := r.datapath.Program()
	for i := range 100 {
		down := s
		down.Paths = slices.Clone(s.Paths)
		down.Paths[i%5].MAC = nil
		r.apply(t, lb.State{Services: []lb.RoutedService{down}})
		for at := range 5 {
			p := web4()
			p.sport, p.flags = uint16(1000+at+i), []string{"S", "A"}[i%2]
			r.check(t, p.build(t))
		}
		r.apply(t, lb.State{Services: []lb.RoutedService{s}})
	}
	if r.datapath.Program() != program {
		t.Error("the program was loaded anew")
	}
}
