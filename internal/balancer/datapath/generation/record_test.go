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
