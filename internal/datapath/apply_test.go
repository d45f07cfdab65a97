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

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/testenv"
)

// scaledState has so many services of so many backends each, all different.
func scaledState(services, backends int, scheduler lb.Scheduler) State {
	var state State
	for i := range services {
		s := Service{Service: lb.Service{
			Name: fmt.Sprintf("s%05d", i), VIP: netip.AddrFrom4([4]byte{198, 18, byte(100 + i>>8), byte(i)}), Port: 80,
			Protocol: lb.TCP, Mode: lb.L2DSR, Scheduler: scheduler,
		}}
		for n := range backends {
			at := uint32(i*backends + n)
			mac := net.HardwareAddr{2, 1, 0, 0, 0, 0}
			binary.BigEndian.PutUint32(mac[2:], at)
			s.Backends = append(s.Backends, lb.Backend{Name: fmt.Sprintf("web%06d", at),
				Address: netip.AddrFrom4([4]byte{10, byte(at >> 16), byte(at >> 8), byte(at)}), Port: 80, Weight: 1})
			s.Paths = append(s.Paths, Path{MAC: mac, Source: balancerMAC})
		}
		state.Services = append(state.Services, s)
	}
	return state
}

// withWeight is the state with another weight of one backend. It shares what stays.
func (s State) withWeight(service, backend int, weight uint16) State {
	s.Services = slices.Clone(s.Services)
	at := &s.Services[service]
	at.Backends = slices.Clone(at.Backends)
	at.Backends[backend].Weight = weight
	return s
}

// BenchmarkApply measures how long it takes until a change of one backend is what
// packets go by, and how long the first configuration takes.
func BenchmarkApply(b *testing.B) {
	testenv.Root(b)
	for _, scale := range []struct{ services, backends int }{{10, 10}, {10_000, 10}, {10, 10_000}} {
		for _, scheduler := range []lb.Scheduler{lb.Maglev, lb.RoundRobin} {
			b.Run(fmt.Sprintf("%dx%d/%s", scale.services, scale.backends, scheduler), func(b *testing.B) {
				state := scaledState(scale.services, scale.backends, scheduler)
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
					state = state.withWeight(i%scale.services, i*7%scale.backends, uint16(2+i%3))
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
