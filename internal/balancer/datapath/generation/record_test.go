// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestChangedRate: connections that another rate has admitted delay those of a service's new rate by no more than its
// own burst does.
func TestChangedRate(t *testing.T) {
	const now = time.Hour
	r := Record{Service: testService(vip4, 80, lb.TCP, lb.Maglev, 1)}
	r.Service.Limits = lb.Limits{Rate: 10000, Burst: 1000}
	// The burst is a tenth of a second's worth, and connections are 100 microseconds apart.
	const latest = now + 100*time.Millisecond + 100*time.Microsecond
	for due, want := range map[time.Duration]time.Duration{
		now + 1000*time.Second: latest,
		latest:                 latest,
		now + time.Millisecond: now + time.Millisecond,
		0:                      0,
	} {
		turn := mapmem.WordsOf(&objects.XDPTurn{Due: uint64(due)})
		r.PutTurn(turn, now)
		if got := time.Duration(mapmem.ElementsOf[objects.XDPTurn](turn)[0].Due); got != want {
			t.Errorf("at %s, the next connection was due at %s, and is at %s, want %s", now, due, got, want)
		}
	}
}

// TestTrackedLater: whether a service has been tracked since it was added is known for as long as it is tracked.
func TestTrackedLater(t *testing.T) {
	p, turn := newTestPlane(), mapmem.WordsOf(&objects.XDPTurn{})
	apply := func(services ...lb.RoutedService) uint8 {
		t.Helper()
		c, err := p.Plan(lb.State{Services: services}, 0, p.now)
		if err != nil {
			t.Fatal(err)
		}
		c.PutLimits(func(uint32) mapmem.Storage { return turn }, func(uint32) mapmem.Storage {
			return mapmem.WordsOf(&objects.XDPBackendLoad{})
		}, 1, time.Hour)
		if !p.publish(c) {
			p.fill(t, c)
		}
		p.Commit(c)
		return mapmem.ElementsOf[objects.XDPTurn](turn)[0].Tracked
	}
	service := func(scheduler lb.Scheduler, backends int) lb.RoutedService {
		return testService(vip4, 80, lb.TCP, scheduler, backends)
	}
	always, later := uint8(objects.XDPTurnTrackedTURN_TRACKED), uint8(objects.XDPTurnTrackedTURN_TRACKED_LATER)
	for i, step := range []struct {
		service lb.RoutedService
		want    uint8
	}{
		{service(lb.Maglev, 3), 0},
		{service(lb.LeastConnections, 3), later},
		{service(lb.RoundRobin, 3), later},
		{service(lb.RoundRobin, 2), later},
		{service(lb.Maglev, 2), 0},
		{service(lb.RoundRobin, 2), later},
	} {
		if got := apply(step.service); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
	apply()
	for i, step := range []lb.RoutedService{service(lb.RoundRobin, 2), service(lb.LeastConnections, 2)} {
		if got := apply(step); got != always {
			t.Errorf("added again, step %d: %d, want %d", i, got, always)
		}
	}
}
