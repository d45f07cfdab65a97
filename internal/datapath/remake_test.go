// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/testenv"
)

// asAnotherBuild rewrites the snapshot of a data plane as a build would have written it to which the
// maps are laid out differently, and whose outcomes have another order.
func asAnotherBuild(d *Datapath, maps []string, reorder func([]string)) error {
	return rewriteSnapshot(d, func(s *snapshot.Snapshot) {
		for _, name := range maps {
			s.Layouts[name] = "another"
		}
		reorder(s.Outcomes)
	})
}

// rewriteSnapshot changes the snapshot of a data plane.
func rewriteSnapshot(d *Datapath, change func(*snapshot.Snapshot)) error {
	path := d.keeper.file(d.keeper.number)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s, err := snapshot.Decode(data)
	if err != nil {
		return err
	}
	change(s)
	var lines [][]byte
	for i := range s.Services {
		line, err := s.Services[i].Line()
		if err != nil {
			return err
		}
		lines = append(lines, line)
	}
	if data, err = snapshot.Encode(s.Head, lines); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// TestKeptByAnotherBuild takes over what a build has left whose maps are laid out differently: flows stay,
// counters go by their names and never back, before the programs are exchanged and after, and over the
// next restart.
func TestKeptByAnotherBuild(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, nics(t), func() error {
		k := newKept(t)
		first, err := k.open()
		if err != nil {
			return err
		}
		state := testState()
		tracked := slices.IndexFunc(state.Services, func(s lb.RoutedService) bool { return s.Scheduler == lb.RoundRobin })
		state.Services[tracked].Limits.Connections = 1000
		if err := first.Apply(state); err != nil {
			return err
		}
		is := first.register.records[tracked]
		flow := xdpFlow{Port: 7, Service: is.id, Backend: is.places[0].index, Generation: is.places[0].generation}
		if !first.shared.proven.insert(flow, xdpFlowStateFLOW_ESTABLISHED, first.janitor.now()) {
			t.Fatal("no room for a flow")
		}
		cpus, err := ebpf.PossibleCPU()
		if err != nil {
			return err
		}
		// In the old order: what the other build calls them is their neighbour's name.
		const one, other = xdpOutcomeOUTCOME_DROPPED_MALFORMED, xdpOutcomeOUTCOME_DROPPED_FRAGMENT
		count := func(m *ebpf.Map, o xdpOutcome, n uint64) {
			t.Helper()
			perCPU := make([]uint64, cpus)
			perCPU[0] = n
			if err := m.Put(uint32(o), perCPU); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(d *Datapath, when string, ones, others uint64) {
			t.Helper()
			counters, err := d.Counters()
			if err != nil {
				t.Fatal(err)
			}
			if a, b := counters.Outcomes[one].Packets, counters.Outcomes[other].Packets; a != ones || b != others {
				t.Errorf("%s, the counters are %d and %d, want %d and %d", when, a, b, ones, others)
			}
		}
		count(first.shared.outcomes, one, 5)
		count(first.shared.outcomes, other, 7)
		if err := asAnotherBuild(first, remade, func(names []string) { names[one], names[other] = names[other], names[one] }); err != nil {
			return err
		}
		if err := first.Leave(); err != nil {
			return err
		}

		second, err := k.open()
		if err != nil {
			return err
		}
		if !second.Adopted() || !strings.Contains(strings.Join(second.Notes(), " "), "made anew") {
			t.Fatalf("it was not taken over: %q", second.Notes())
		}
		expect(second, "before the programs are exchanged", 7, 5)
		// The old program goes on counting until then.
		count(second.ledger.former.m, one, 6)
		if turn := elements[xdpTurn](second.shared.turn(is.id))[0]; turn.Cap != 1000 {
			t.Errorf("before the programs are exchanged, the bound of connections is %d", turn.Cap)
		}
		if err := second.Apply(state); err != nil {
			return err
		}
		count(second.shared.outcomes, one, 100)
		expect(second, "after the programs were exchanged", 107, 6)
		if _, there := second.shared.proven.find(&flow); !there {
			t.Error("a flow is forgotten")
		}
		if active := atomic.LoadUint32(&elements[xdpTurn](second.shared.turn(is.id))[0].Active); active != 1 {
			t.Errorf("active flows of its service: %d, want 1", active)
		}
		if err := second.Leave(); err != nil {
			return err
		}
		third, err := k.open()
		if err != nil {
			return err
		}
		defer third.Close()
		expect(third, "after the next restart", 107, 6)
		return nil
	})
}
