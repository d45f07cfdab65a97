// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestFreedIndexStaysInItsService: a packet under way that still reads a service's previous table finds the next owner
// of a removed backend's index. That must not be another service's backend: the packet's flow would stay there.
func TestFreedIndexStaysInItsService(t *testing.T) {
	one, other := testService(vip4, 80, lb.TCP, lb.RoundRobin, 2), testService(vip4, 81, lb.TCP, lb.RoundRobin, 1)
	less, more := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1), testService(vip4, 81, lb.TCP, lb.RoundRobin, 2)
	replaced := testService(vip4, 80, lb.TCP, lb.RoundRobin, 2)
	replaced.Backends[1].Address = testService(vip4, 80, lb.TCP, lb.RoundRobin, 3).Backends[2].Address
	for name, test := range map[string]struct {
		before, after []lb.RoutedService
		// indices is how many were ever used after the change, and free how many of them are.
		indices, free int
	}{
		"another service gets a backend": {[]lb.RoutedService{one, other}, []lb.RoutedService{less, more}, 4, 1},
		"in the other order":             {[]lb.RoutedService{other, one}, []lb.RoutedService{more, less}, 4, 1},
		"another service is added":       {[]lb.RoutedService{one}, []lb.RoutedService{more}, 4, 2},
		"the same service gets one":      {[]lb.RoutedService{one, other}, []lb.RoutedService{replaced, other}, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTestPlane()
			p.apply(t, lb.State{Services: test.before})
			owners := map[uint32]lb.ServiceKey{}
			for key, place := range p.Places.Backends {
				owners[place.Index] = key.Service
			}
			p.apply(t, lb.State{Services: test.after})
			for key, place := range p.Places.Backends {
				if before, had := owners[place.Index]; had && before != key.Service {
					t.Errorf("%v has index %d, which was a backend's of %v", key, place.Index, before)
				}
			}
			if got, free := p.Places.IndicesEver(), len(p.Places.free); got != test.indices || free != test.free {
				t.Errorf("%d indices, %d of them free; want %d, %d", got, free, test.indices, test.free)
			}
			p.expect(t, 0)
			// The next change may give them to any service.
			third := testService(vip4, 82, lb.TCP, lb.Maglev, 2)
			p.apply(t, lb.State{Services: append(slices.Clone(test.after), third)})
			if want := max(test.indices, test.indices-test.free+2); p.Places.IndicesEver() != want {
				t.Errorf("after the next change %d indices, want %d", p.Places.IndicesEver(), want)
			}
		})
	}
}

// TestIndexWithSockets: sockets of this host count for the index of a removed backend until they are closed, so that
// no other backend gets it before.
func TestIndexWithSockets(t *testing.T) {
	p := newTestPlane()
	both, one := testService(vip4, 80, lb.TCP, lb.RoundRobin, 2), testService(vip4, 80, lb.TCP, lb.RoundRobin, 1)
	p.apply(t, lb.State{Services: []lb.RoutedService{both}})
	index := p.Places.Backends[both.BackendKey(both.Backends[1])].Index
	sockets := map[uint32]uint32{index: 1}
	p.SocketsAt = func() map[uint32]uint32 { return sockets }

	replaced := testService(vip4, 80, lb.TCP, lb.RoundRobin, 2)
	replaced.Backends[1].Address = testService(vip4, 80, lb.TCP, lb.RoundRobin, 3).Backends[2].Address
	next := func(s lb.RoutedService) uint32 {
		p.apply(t, lb.State{Services: []lb.RoutedService{s}})
		return p.Places.Backends[s.BackendKey(s.Backends[1])].Index
	}
	if next(replaced) == index {
		t.Error("a backend of the service has the index in the same change")
	}
	p.apply(t, lb.State{Services: []lb.RoutedService{one}})
	if next(both) == index {
		t.Error("a backend has the index in a later change")
	}
	p.apply(t, lb.State{Services: []lb.RoutedService{one}})
	sockets = nil
	if next(both) != index {
		t.Error("the index is not used again after the sockets were closed")
	}
}
