// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// TestStatusIsDated: by the time that a status says it is of, everything in it is as long ago as it is, however the
// clock was set meanwhile.
func TestStatusIsDated(t *testing.T) {
	start := time.Now()
	shown, by := start, time.Duration(0)
	read := func() clock.Reading {
		r := clock.At(shown, "boot", time.Hour+shown.Sub(start))
		r.Wall = r.Wall.Add(by)
		return r
	}
	began, deadline := start.Add(10*time.Minute), start.Add(2*time.Hour)
	kept := ops.Status{Started: start, BGP: &ops.BGP{Peers: []ops.BGPPeer{{Since: began}}}, Services: []ops.Service{{
		Backends: []ops.Backend{{Health: &ops.Health{State: lb.Failing, Since: began}}}}},
		Operations: ops.Operations{InForce: []ops.Overlay{{Drain: &ops.Drained{At: began, Deadline: deadline}}}}}
	status := withTimestamps(clock.NewWallClock(read()), func() (ops.Status, error) { return kept, nil }, read)
	for _, by = range []time.Duration{0, time.Hour, -time.Hour, 0} {
		shown = shown.Add(30 * time.Minute)
		s, err := status()
		if err != nil {
			t.Fatal(err)
		}
		drain := s.Operations.InForce[0].Drain
		for name, of := range map[string]struct{ got, want time.Time }{
			"started":  {s.Started, start},
			"router":   {s.BGP.Peers[0].Since, began},
			"health":   {s.Services[0].Backends[0].Health.Since, began},
			"drain":    {drain.At, began},
			"deadline": {drain.Deadline, deadline},
		} {
			if got, want := s.At.Sub(of.got), shown.Sub(of.want); got != want {
				t.Errorf("%s, the clock set by %v: %v ago, want %v", name, by, got, want)
			}
		}
	}
	if kept.Services[0].Backends[0].Health.Since != began {
		t.Error("what others have of the status, too, was changed")
	}
}
