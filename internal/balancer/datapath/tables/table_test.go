// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/maglev"
)

// largeTable is a prime of more slots than are filled again for each change.
const largeTable = 131_101

// ownersOf returns the backend of each slot of a table.
func (t *Table) ownersOf() []netip.AddrPort {
	owners := make([]netip.AddrPort, len(t.Slots))
	for slot, member := range t.Slots {
		owners[slot] = t.Owners[member]
	}
	return owners
}

// buildAfter builds a service's table after that of an earlier state of it.
func buildAfter(t *testing.T, s *lb.RoutedService, was *Table) *Table {
	t.Helper()
	r := RecipeOf(s, 0)
	r.Full = View{Table: was}.FindFull(&r.FullRecipe)
	made, err := r.Build()
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestLargeTables takes backends of a large table out and in again: only their slots move, to others, and the order of
// earlier changes does not matter.
func TestLargeTables(t *testing.T) {
	away := map[string]func(s *lb.RoutedService, i int){
		"down": func(s *lb.RoutedService, i int) { s.Paths[i].MAC = nil },
		"unhealthy": func(s *lb.RoutedService, i int) {
			s.Observed = s.Observed.With(i, lb.Observed{Unhealthy: "answers 503"})
		},
		"drained":  func(s *lb.RoutedService, i int) { s.Backends[i].Draining = true },
		"weight 0": func(s *lb.RoutedService, i int) { s.Backends[i].Weight = 0 },
	}
	for name, leave := range away {
		for _, scheduler := range []lb.Scheduler{lb.Maglev, lb.RoundRobin, lb.WeightedLeastConnections} {
			t.Run(name+" "+string(scheduler), func(t *testing.T) {
				s := routedService(80, scheduler, 30)
				s.TableSize = largeTable
				for i := range s.Backends {
					s.Backends[i].Weight = 7
				}
				whole := buildAfter(t, &s, nil)
				all, last := whole.ownersOf(), whole
				for _, i := range []int{4, 0, 29} {
					leave(&s, i)
					last = buildAfter(t, &s, last)
					if last.Full != whole.Full {
						t.Error("the table of all was filled again")
					}
				}
				if !slices.Equal(last.ownersOf(), buildAfter(t, &s, nil).ownersOf()) {
					t.Error("made of the table of before, it is another than made anew")
				}
				gone := []netip.AddrPort{whole.Owners[4], whole.Owners[0], whole.Owners[29]}
				for slot, owner := range last.ownersOf() {
					left := slices.Contains(gone, all[slot])
					if slices.Contains(gone, owner) || left == (owner == all[slot]) {
						t.Fatalf("slot %d went from %v to %v; %v have left", slot, all[slot], owner, gone)
					}
				}
			})
		}
	}
}

// TestSmallTables are the same as if those who are absent did not exist.
func TestSmallTables(t *testing.T) {
	s := routedService(80, lb.Maglev, 12)
	whole := buildAfter(t, &s, nil)
	s.Paths[5].MAC = nil
	got := buildAfter(t, &s, whole)
	s.Backends, s.Paths = slices.Delete(s.Backends, 5, 6), slices.Delete(s.Paths, 5, 6)
	if want := buildAfter(t, &s, nil); !slices.Equal(got.ownersOf(), want.ownersOf()) || got.Full == whole.Full {
		t.Error("a backend that is down has left a trace")
	}
}

// TestLargeTableIsMaglevs: where no backend is absent, and where weights differ.
func TestLargeTableIsMaglevs(t *testing.T) {
	s := routedService(80, lb.Maglev, 5)
	s.TableSize = largeTable
	var weights []uint32
	var names []string
	for i := range s.Backends {
		s.Backends[i].Weight = uint16(1 + 3*i)
		weights = append(weights, uint32(s.Backends[i].Weight))
		names = append(names, netip.AddrPortFrom(s.Backends[i].Address, s.Backends[i].Port).String())
	}
	want, err := maglev.Build(weights, names, largeTable)
	if err != nil {
		t.Fatal(err)
	}
	whole := buildAfter(t, &s, nil)
	if !slices.Equal(whole.Slots, want) {
		t.Error("the table is another")
	}
	// With another weight the table of all is another.
	s.Backends[2].Weight++
	if next := buildAfter(t, &s, whole); next.Full == whole.Full || slices.Equal(next.Slots, want) {
		t.Error("the weight did not matter")
	}
	// Weight 0 has the heaviest's share in the table of all.
	s.Backends[2].Weight = 0
	if r := RecipeOf(&s, 0); !slices.Equal(r.Shares, []uint32{1, 4, 13, 10, 13}) ||
		!slices.Equal(r.Weights, []uint32{1, 4, 10, 13}) {
		t.Errorf("shares %v, weights %v", r.Shares, r.Weights)
	}
}
