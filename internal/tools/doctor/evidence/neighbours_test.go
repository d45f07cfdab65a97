// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestNextHopsOfManyBackends: what is asked for each neighbour does not go through all backends again, of which there
// are thousands, as neighbours are.
func TestNextHopsOfManyBackends(t *testing.T) {
	const n = 20_000
	service := ops.Service{Name: "web"}
	address := netip.MustParseAddr("10.0.0.1")
	e := &Evidence{Seconds: 3, Traced: true}
	for i := range n {
		service.Backends = append(service.Backends, ops.Backend{Name: fmt.Sprintf("web%d", i), Address: address})
		e.After.Neighbours = append(e.After.Neighbours, Neighbour{Address: address, MAC: "02:00:00:00:00:01",
			State: "REACHABLE", Since: 900})
		address = address.Next()
	}
	router := netip.MustParseAddr("192.0.2.1")
	service.Backends = append(service.Backends, ops.Backend{Name: "far", Address: address, NextHop: router})
	again := ops.Service{Name: "other", Backends: []ops.Backend{service.Backends[0]}}
	e.After.Balancer = &ops.Status{Services: []ops.Service{service, again}}
	for _, neighbour := range e.After.Neighbours {
		if !e.After.ShouldProbe(neighbour) || !e.Wanted(neighbour, 0) {
			t.Fatalf("the backend at %s is no next hop", neighbour.Address)
		}
	}
	for a, want := range map[netip.Addr]string{
		e.After.Neighbours[0].Address: "10.0.0.1 (backend web/web0)",
		router:                        "192.0.2.1 (router to web/far)",
		address:                       address.String(),
	} {
		if got := e.After.NameOf(a); got != want {
			t.Errorf("%s is named %q, want %q", a, got, want)
		}
	}
	last := e.After.Neighbours[n-1]
	ask := func() { e.After.ShouldProbe(last); e.Wanted(last, 0) }
	if allocations := testing.AllocsPerRun(10, ask); allocations > 0 {
		t.Errorf("a question about a neighbour makes %v allocations: it lists the next hops anew", allocations)
	}
}
