// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Totals are sums over the backends of a service.
type Totals struct {
	Backends int `json:"backends"`
	// States counts the backends by state.
	States          map[lb.BackendState]int `json:"states"`
	Packets         uint64                  `json:"packets"`
	Bytes           uint64                  `json:"bytes"`
	ReturnedPackets uint64                  `json:"returned_packets"`
	ReturnedBytes   uint64                  `json:"returned_bytes"`
	Connections     uint64                  `json:"connections"`
}

// Totals returns the sums over the service's backends.
func (s *Service) Totals() Totals {
	t := Totals{Backends: len(s.Backends), States: map[lb.BackendState]int{}}
	for i := range s.Backends {
		b := &s.Backends[i]
		t.States[b.State]++
		t.Packets += b.Packets
		t.Bytes += b.Bytes
		t.ReturnedPackets += b.ReturnedPackets
		t.ReturnedBytes += b.ReturnedBytes
		t.Connections += b.Connections
	}
	return t
}

// Watched is a status for clients that watch it.
type Watched struct {
	// At is when it was taken, by the balancer's clock.
	At time.Time `json:"at"`
	// ClockSeconds is the time since the daemon's start by the monotonic clock, for rates.
	ClockSeconds float64 `json:"clock_seconds"`
	// Status has the backends of the requested services only.
	Status Status `json:"status"`
	// Totals are the totals of all services, by name.
	Totals map[string]Totals `json:"totals"`
}

// Watched returns the status at a moment with the backends of some services only.
func (s Status) Watched(at time.Time, clock time.Duration, with func(service string) bool) Watched {
	w := Watched{At: at, ClockSeconds: clock.Seconds(), Totals: make(map[string]Totals, len(s.Services))}
	services := make([]Service, len(s.Services))
	for i, service := range s.Services {
		w.Totals[service.Name] = service.Totals()
		if !with(service.Name) {
			service.Backends = []Backend{}
		}
		services[i] = service
	}
	s.Services = services
	w.Status = s
	return w
}
