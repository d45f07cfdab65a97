// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestFullNATEndsSeenApart: a client's FIN passes one balancer, and its backend's another, as replies come by the one
// whose address of the pool they are sent to. Once they have told each other, the flow holds its port at none,
// whichever FIN was first, and where both were told at the same time.
func TestFullNATEndsSeenApart(t *testing.T) {
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1)
	s.Mode = lb.FullNAT
	type side struct {
		peer
		ends func(lb.Flow)
	}
	for name, order := range map[string]struct{ backendFirst, crossing bool }{
		"client first": {}, "backend first": {backendFirst: true}, "crossing": {crossing: true},
	} {
		t.Run(name, func(t *testing.T) {
			client := side{peer: newPeer(t, s)}
			client.ends = func(f lb.Flow) { client.send(int(f.Client.Port()), "FA") }
			backend := side{peer: newPeer(t, s)}
			backend.ends = func(f lb.Flow) {
				backend.run(with(answersTo(&s, f.Source), func(p *packetSpec) { p.flags = "FA" }))
			}
			third := newPeer(t, s)
			client.send(1000, "S", "A")
			flows := client.changed()
			if len(flows) != 1 {
				t.Fatalf("%v", flows)
			}
			backend.take(flows, mergeResult{New: 1})
			third.take(flows, mergeResult{New: 1})
			first, second := client, backend
			if order.backendFirst {
				first, second = backend, client
			}
			first.ends(flows[0])
			told := first.changed()
			if !order.crossing {
				second.take(told, mergeResult{Known: 1})
			}
			second.ends(flows[0])
			told2 := second.changed()
			first.take(told2, mergeResult{Known: 1})
			if order.crossing {
				second.take(told, mergeResult{Known: 1})
			}
			third.take(append(told, told2...), mergeResult{Known: 2})
			for at, m := range map[string]peer{"the client's FIN passed": client.peer,
				"the backend's FIN passed": backend.peer, "neither passed": third} {
				m.janitor.Advance(time.Second)
				for _, f := range m.snapshot() {
					if f.State != lb.FlowClosed && f.State != lb.FlowTimeWait {
						t.Errorf("where %s, the flow is %s", at, f.State)
					}
				}
				if held := m.PortsHeld([]lb.BackendKey{s.BackendKey(s.Backends[0])}); held[0] != 0 {
					t.Errorf("where %s, %d ports are held", at, held[0])
				}
				if n := m.activeOf(&s); n != 0 {
					t.Errorf("where %s, %d flows are active", at, n)
				}
			}
		})
	}
}
