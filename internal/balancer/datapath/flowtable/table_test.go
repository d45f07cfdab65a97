// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// testFlow is the n-th of many flows, all different.
func testFlow(n int) objects.XDPFlow {
	flow := objects.XDPFlow{Service: uint32(n % 3), Port: uint16(n * 7), Backend: uint32(n % 5), Generation: 1}
	flow.Address[0] = uint32(n)
	if n%2 == 1 {
		flow.Address[3] = uint32(n) * 0x9e3779b1
	}
	return flow
}

// always and never are conditions for release.
func always(*objects.XDPFlow, objects.XDPFlowState, uint32) bool { return true }
func never(*objects.XDPFlow, objects.XDPFlowState, uint32) bool  { return false }

// tableModel is a table of flows beside its expected contents.
type tableModel struct {
	table *Table
	known map[int]objects.XDPFlowState
}

func newTableModel(limit uint32) *tableModel {
	return &tableModel{NewTable(limit, 0x5eed), map[int]objects.XDPFlowState{}}
}

// do makes one step, for the n-th flow.
func (m *tableModel) do(t *testing.T, op, n int) {
	flow := testFlow(n)
	place, found := m.table.Find(&flow)
	state, known := m.known[n]
	if found != known || found && place.State() != state {
		t.Fatalf("flow %d: found %v, want %v in state %d", n, found, known, state)
	}
	switch {
	case op%4 == 0 && !found:
		state := objects.XDPFlowState(1 + n%int(objects.XDPFlowStateFLOW_STATES-1))
		if m.table.Insert(flow, state, uint32(n)) {
			m.known[n] = state
		} else if home, second,
			_ := m.table.bucketsOf(m.table.HashKey(&flow)); tagsIn(&m.table.Buckets[home]) < PerBucket &&
			tagsIn(&m.table.Buckets[second]) < PerBucket {
			t.Fatalf("flow %d: no room in buckets of %d and %d flows", n, tagsIn(&m.table.Buckets[home]),
				tagsIn(&m.table.Buckets[second]))
		}
	case op%4 == 1 && found:
		got, was, ok := m.table.Release(place, place.Tag(), always)
		if !ok || was != state || got != flow {
			t.Fatalf("flow %d: released %+v (%v) in state %d, want %+v in %d", n, got, ok, was, flow, state)
		}
		delete(m.known, n)
	case op%4 == 2 && found:
		if _, _, ok := m.table.Release(place, place.Tag(), never); ok {
			t.Fatalf("flow %d: released against its will", n)
		}
		if _, _, ok := m.table.Release(place, place.Tag()^2, always); ok {
			t.Fatalf("flow %d: released under another tag", n)
		}
	case op%4 == 3 && found:
		if was := place.exchangeState(objects.XDPFlowStateFLOW_CLOSED); was != state {
			t.Fatalf("flow %d: state %d, want %d", n, was, state)
		}
		m.known[n] = objects.XDPFlowStateFLOW_CLOSED
	}
}

func (m *tableModel) check(t *testing.T) {
	t.Helper()
	if wrongs := m.table.Check(); wrongs != "" {
		t.Fatal(wrongs)
	}
	if n := len(m.table.Places()); n != len(m.known) {
		t.Fatalf("%d flows are there, want %d", n, len(m.known))
	}
}

// TestFlowTable fills and empties tables at random, beyond their capacity.
func TestFlowTable(t *testing.T) {
	for _, limit := range []uint32{1, 5, 40, 400} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(limit), 4))
			m := newTableModel(limit)
			for range 40 {
				for range 5 * limit {
					m.do(t, random.IntN(4), random.IntN(int(3*limit)))
				}
				m.check(t)
			}
			for _, place := range m.table.Places() {
				m.table.Release(place, place.Tag(), always)
			}
			m.known = nil
			m.check(t)
			if len(m.table.Places()) != 0 {
				t.Error("not empty")
			}
		})
	}
}

func FuzzFlowTable(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(slices.Repeat([]byte{0, 4, 8, 12, 16, 1}, 30))
	f.Fuzz(func(t *testing.T, steps []byte) {
		m := newTableModel(10)
		for _, b := range steps {
			m.do(t, int(b), int(b)/4)
		}
		m.check(t)
	})
}

// TestFlowTableHoldsWhatItIsPlannedFor: of as many flows as a table is made for, nearly
// each finds room, and one takes less than 128 bytes.
func TestFlowTableHoldsWhatItIsPlannedFor(t *testing.T) {
	for _, limit := range []uint32{1000, 200000} {
		table, refused := NewTable(limit, 0x5eed), 0
		for n := range int(limit) {
			if !table.Insert(testFlow(n), objects.XDPFlowStateFLOW_ESTABLISHED, 0) {
				refused++
			}
		}
		if float64(refused) > float64(limit)/10000 {
			t.Errorf("%d of %d flows found no room", refused, limit)
		}
		if bytes := len(table.Buckets) * BucketSize; bytes > 128*int(limit) {
			t.Errorf("%d bytes for %d flows", bytes, limit)
		}
	}
}

// BenchmarkFlowWalk is a round of the janitor over a full table for a million flows.
func BenchmarkFlowWalk(b *testing.B) {
	const limit = 1_000_000
	h := newJanitorRig(8)
	h.input.Flows = NewTable(limit, 0x5eed)
	for n := range limit {
		h.input.Flows.Insert(rigFlow(n, uint32(n%3), uint32(n%6)), objects.XDPFlowStateFLOW_ESTABLISHED, h.head.Clock)
	}
	var tally Tally
	tally.resize(&h.Rules)
	for b.Loop() {
		h.Rules.walk(h.input.Flows, 0, len(h.input.Flows.Buckets), h.head.Clock, &tally)
	}
}

// TestAdopt moves flows into a larger and into a smaller table, twice, as at a change
// of the configuration: none is lost that there is room for, and none comes twice.
func TestAdopt(t *testing.T) {
	old := NewTable(1000, 0x5eed)
	fill := func(from, to int) {
		for n := from; n < to; n++ {
			if !old.Insert(testFlow(n), objects.XDPFlowStateFLOW_ESTABLISHED, uint32(n)) {
				t.Fatal("no room")
			}
		}
	}
	fill(0, 500)
	larger, smaller := NewTable(5000, 0x5eed), NewTable(100, 0x5eed)
	larger.CopyFrom(old, nil)
	smaller.CopyFrom(old, nil)
	fill(500, 600)
	// Of those that were copied, one ends before packets see the copy.
	ended := testFlow(7)
	place, _ := old.Find(&ended)
	place.SetState(objects.XDPFlowStateFLOW_ESTABLISHED, objects.XDPFlowStateFLOW_CLIENT_FIN)
	if lost := larger.CopyFrom(old, nil); lost != 0 {
		t.Errorf("%d flows found no room in a larger table", lost)
	}
	lost := smaller.CopyFrom(old, nil)
	for _, table := range []*Table{larger, smaller} {
		if wrongs := table.Check(); wrongs != "" {
			t.Error(wrongs)
		}
		for _, place := range table.Places() {
			if flow := place.Flow(); testFlow(int(flow.Address[0])) != flow || place.Seen() != flow.Address[0] {
				t.Fatalf("%+v became another", flow)
			}
		}
	}
	if n := len(larger.Places()); n != 600 {
		t.Errorf("%d flows arrived, want 600", n)
	}
	if n := len(smaller.Places()); n+lost != 600 || n < 100 {
		t.Errorf("%d flows arrived and %d did not, want 600", n, lost)
	}
	if place, found := larger.Find(&ended); !found || place.State() != objects.XDPFlowStateFLOW_CLIENT_FIN {
		t.Error("a flow that has ended goes on in the other table")
	}
}

// TestAdoptMakesRoom copies tables that are as full as they are planned for into others of the same size, to
// which flows come bucket by bucket: each finds room, though not each does in one of its two buckets as
// they are.
func TestAdoptMakesRoom(t *testing.T) {
	const limit = 200_000
	moved := 0
	for secret := range uint64(3) {
		from, plain, to := NewTable(limit, 0x5eed), NewTable(limit, 0x5eed), NewTable(limit, 0x5eed)
		from.secret, plain.secret, to.secret = secret, secret, secret
		flows := 0
		for n := range limit {
			if from.Insert(testFlow(n), objects.XDPFlowStateFLOW_ESTABLISHED, uint32(n)) {
				flows++
			}
		}
		from.Each(func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) {
			if !plain.Insert(*flow, state, seen) {
				moved++
			}
		})
		if lost := to.CopyFrom(from, nil); lost != 0 || len(to.Places()) != flows {
			t.Errorf("of %d flows %d have no room, and %d are there", flows, lost, len(to.Places()))
		}
		if wrongs := to.Check(); wrongs != "" {
			t.Error(wrongs)
		}
	}
	if moved == 0 {
		t.Error("no flow needed room to be made")
	}
}
