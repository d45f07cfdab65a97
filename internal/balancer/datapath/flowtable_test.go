// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// testTable is a table of flows in plain memory.
func testTable(limit uint32) *flowTable {
	return &flowTable{buckets: make([]objects.XDPFlowBucket, bucketsFor(limit)), secret: 0x5eed}
}

// testFlow is the n-th of many flows, all different.
func testFlow(n int) objects.XDPFlow {
	flow := objects.XDPFlow{Service: uint32(n % 3), Port: uint16(n * 7), Backend: uint32(n % 5), Generation: 1}
	flow.Address[0] = uint32(n)
	if n%2 == 1 {
		flow.Address[3] = uint32(n) * 0x9e3779b1
	}
	return flow
}

// places lists what is in a table.
func (t *flowTable) places() (list []flowPlace) {
	for i := range t.buckets {
		for at := range flowsPerBucket {
			if place := (flowPlace{&t.buckets[i], at}); place.tag() != 0 {
				list = append(list, place)
			}
		}
	}
	return list
}

// wrongs says what in a table that is at rest must not be: a place that is still
// being written, a flow that is not found or is there twice, and a bucket that does not
// know how many flows are in their second bucket instead of it.
func (t *flowTable) wrongs() string {
	var wrongs strings.Builder
	spilled := make([]uint32, len(t.buckets))
	seen := map[objects.XDPFlow]bool{}
	for _, place := range t.places() {
		flow := place.flow()
		home, second, tag := t.homes(t.hashKey(&flow))
		if place.tag() != tag || place.state() == objects.XDPFlowStateFLOW_FREE {
			fmt.Fprintf(&wrongs, "%+v: tag %#x in state %d, want %#x\n", flow, place.tag(), place.state(), tag)
		}
		switch place.bucket {
		case &t.buckets[home]:
		case &t.buckets[second]:
			spilled[home]++
		default:
			fmt.Fprintf(&wrongs, "%+v is in neither of its buckets\n", flow)
		}
		key := flow
		key.Backend, key.Generation, key.Source.Port, key.Source.Address = 0, 0, 0, 0
		if seen[key] {
			fmt.Fprintf(&wrongs, "%+v is there twice\n", flow)
		}
		seen[key] = true
		if found, ok := t.find(&flow); !ok || found != place {
			fmt.Fprintf(&wrongs, "%+v is not found where it is\n", flow)
		}
	}
	for i := range t.buckets {
		if got := t.buckets[i].Elsewhere; uint32(got) != spilled[i] || spilled[i] == 0 && got != 0 {
			fmt.Fprintf(&wrongs, "bucket %d has %d flows elsewhere and says %#x\n", i, spilled[i], got)
		}
	}
	return wrongs.String()
}

// always and never are what release asks.
func always(*objects.XDPFlow, objects.XDPFlowState, uint32) bool { return true }
func never(*objects.XDPFlow, objects.XDPFlowState, uint32) bool  { return false }

// tableModel is a table of flows beside what should be in it.
type tableModel struct {
	table *flowTable
	known map[int]objects.XDPFlowState
}

func newTableModel(limit uint32) *tableModel {
	return &tableModel{testTable(limit), map[int]objects.XDPFlowState{}}
}

// do makes one step, for the n-th flow.
func (m *tableModel) do(t *testing.T, op, n int) {
	flow := testFlow(n)
	place, found := m.table.find(&flow)
	state, known := m.known[n]
	if found != known || found && place.state() != state {
		t.Fatalf("flow %d: found %v, want %v in state %d", n, found, known, state)
	}
	switch {
	case op%4 == 0 && !found:
		state := objects.XDPFlowState(1 + n%int(objects.XDPFlowStateFLOW_STATES-1))
		if m.table.insert(flow, state, uint32(n)) {
			m.known[n] = state
		} else if home, second, _ := m.table.homes(m.table.hashKey(&flow)); tagsIn(&m.table.buckets[home]) < flowsPerBucket && tagsIn(&m.table.buckets[second]) < flowsPerBucket {
			t.Fatalf("flow %d: no room in buckets of %d and %d flows", n, tagsIn(&m.table.buckets[home]), tagsIn(&m.table.buckets[second]))
		}
	case op%4 == 1 && found:
		got, was, ok := m.table.release(place, place.tag(), always)
		if !ok || was != state || got != flow {
			t.Fatalf("flow %d: released %+v (%v) in state %d, want %+v in %d", n, got, ok, was, flow, state)
		}
		delete(m.known, n)
	case op%4 == 2 && found:
		if _, _, ok := m.table.release(place, place.tag(), never); ok {
			t.Fatalf("flow %d: released against its will", n)
		}
		if _, _, ok := m.table.release(place, place.tag()^2, always); ok {
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
	if wrongs := m.table.wrongs(); wrongs != "" {
		t.Fatal(wrongs)
	}
	if n := len(m.table.places()); n != len(m.known) {
		t.Fatalf("%d flows are there, want %d", n, len(m.known))
	}
}

// TestFlowTable fills and empties tables at random, beyond what they can hold.
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
			for _, place := range m.table.places() {
				m.table.release(place, place.tag(), always)
			}
			m.known = nil
			m.check(t)
			if len(m.table.places()) != 0 {
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
		table, refused := testTable(limit), 0
		for n := range int(limit) {
			if !table.insert(testFlow(n), objects.XDPFlowStateFLOW_ESTABLISHED, 0) {
				refused++
			}
		}
		if float64(refused) > float64(limit)/10000 {
			t.Errorf("%d of %d flows found no room", refused, limit)
		}
		if bytes := len(table.buckets) * bucketSize; bytes > 128*int(limit) {
			t.Errorf("%d bytes for %d flows", bytes, limit)
		}
	}
}

// BenchmarkFlowWalk is a round of the janitor over a full table for a million flows.
func BenchmarkFlowWalk(b *testing.B) {
	const limit = 1_000_000
	h := newTestHouse(8)
	h.scene.flows = testTable(limit)
	for n := range limit {
		h.scene.flows.insert(houseFlow(n, uint32(n%3), uint32(n%6)), objects.XDPFlowStateFLOW_ESTABLISHED, h.head.Clock)
	}
	var tally flowTally
	tally.fit(&h.rules)
	for b.Loop() {
		h.rules.walk(h.scene.flows, 0, len(h.scene.flows.buckets), h.head.Clock, &tally)
	}
}

// TestAdopt moves flows into a larger and into a smaller table, twice, as at a change
// of the configuration: none is lost that there is room for, and none comes twice.
func TestAdopt(t *testing.T) {
	old := testTable(1000)
	fill := func(from, to int) {
		for n := from; n < to; n++ {
			if !old.insert(testFlow(n), objects.XDPFlowStateFLOW_ESTABLISHED, uint32(n)) {
				t.Fatal("no room")
			}
		}
	}
	fill(0, 500)
	larger, smaller := testTable(5000), testTable(100)
	larger.adopt(old, nil)
	smaller.adopt(old, nil)
	fill(500, 600)
	// Of those that were copied, one ends before packets see the copy.
	ended := testFlow(7)
	place, _ := old.find(&ended)
	place.change(objects.XDPFlowStateFLOW_ESTABLISHED, objects.XDPFlowStateFLOW_CLIENT_FIN)
	if lost := larger.adopt(old, nil); lost != 0 {
		t.Errorf("%d flows found no room in a larger table", lost)
	}
	lost := smaller.adopt(old, nil)
	for _, table := range []*flowTable{larger, smaller} {
		if wrongs := table.wrongs(); wrongs != "" {
			t.Error(wrongs)
		}
		for _, place := range table.places() {
			if flow := place.flow(); testFlow(int(flow.Address[0])) != flow || place.seen() != flow.Address[0] {
				t.Fatalf("%+v became another", flow)
			}
		}
	}
	if n := len(larger.places()); n != 600 {
		t.Errorf("%d flows arrived, want 600", n)
	}
	if n := len(smaller.places()); n+lost != 600 || n < 100 {
		t.Errorf("%d flows arrived and %d did not, want 600", n, lost)
	}
	if place, found := larger.find(&ended); !found || place.state() != objects.XDPFlowStateFLOW_CLIENT_FIN {
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
		from, plain, to := testTable(limit), testTable(limit), testTable(limit)
		from.secret, plain.secret, to.secret = secret, secret, secret
		flows := 0
		for n := range limit {
			if from.insert(testFlow(n), objects.XDPFlowStateFLOW_ESTABLISHED, uint32(n)) {
				flows++
			}
		}
		from.each(func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) {
			if !plain.insert(*flow, state, seen) {
				moved++
			}
		})
		if lost := to.adopt(from, nil); lost != 0 || len(to.places()) != flows {
			t.Errorf("of %d flows %d have no room, and %d are there", flows, lost, len(to.places()))
		}
		if wrongs := to.wrongs(); wrongs != "" {
			t.Error(wrongs)
		}
	}
	if moved == 0 {
		t.Error("no flow needed room to be made")
	}
}
