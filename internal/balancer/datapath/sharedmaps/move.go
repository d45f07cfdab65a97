// SPDX-License-Identifier: Apache-2.0

package sharedmaps

import (
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/rcu"
)

// Move copies flows from one set of tables to another, of other sizes or of another layout, while packets arrive: once
// when the programs that use the new tables are loaded, and again when those that use the old ones are detached.
type Move struct {
	Janitor  *flowtable.Janitor
	From, To *Maps
	// Previous are further tables of an earlier process.
	Previous *PreviousFlows
	// Returns recreates the return entries of full-NAT flows.
	Returns flowtable.ReplyKeys
	// Memory is the memory of the programs that use the new tables.
	Memory *generation.Memory
	// Begun says that Begin has copied flows.
	Begun bool
	// Lost is how many flows had no room in the last copy.
	Lost int
}

// moveTimeout bounds for how long packets of unknown flows are dropped during a move: longer than copying takes, and
// finite since the process may be killed during a move.
const moveTimeout = 10 * time.Second

// PreviousFlows are tables of flows in use, or used last, that are not among the shared maps: they have another layout,
// or were being replaced when a process was killed.
type PreviousFlows struct {
	Proven, Unproven []PreviousTable
	// Bytes is the memory of tables of another layout.
	Bytes uint64
}

// PreviousTable is a table of flows among PreviousFlows.
type PreviousTable interface {
	flowtable.Source
	// IsOf reports whether the table is in that map.
	IsOf(*ebpf.Map) bool
	Close()
}

// Close closes the tables. The receiver may be nil.
func (f *PreviousFlows) Close() {
	if f == nil {
		return
	}
	for _, tables := range [][]PreviousTable{f.Proven, f.Unproven} {
		for _, t := range tables {
			t.Close()
		}
	}
	f.Proven, f.Unproven = nil, nil
}

// Any reports whether there are such tables.
func (f *PreviousFlows) Any() bool { return f != nil && len(f.Proven)+len(f.Unproven) > 0 }

// Begin copies all flows, and then those that have changed meanwhile. From then on the janitor expires no flow, until
// it works on the new tables: an expired flow would remain in one of the two.
func (m *Move) Begin() {
	if m.From == nil || m.Begun || !m.needed() {
		return
	}
	m.Begun = true
	m.Janitor.Freeze(true)
	m.copy(nil)
	m.copy(m.dropUnproven)
	atomic.StoreUint64(&m.Memory.Head().Moving, uint64(flowtable.Monotonic()+moveTimeout))
}

func (m *Move) needed() bool {
	return m.From.Proven != m.To.Proven || m.From.Unproven != m.To.Unproven || m.Previous.Any()
}

// Finish copies changes of flows since Begin: at once, because the new programs do not know them before, and again when
// no old program runs any more. Until then the new programs drop packets that may belong to such a flow
// (flows_are_moving() in bpf/balancer/flow/track.h).
func (m *Move) Finish() {
	if !m.Begun {
		return
	}
	m.copy(m.dropUnproven)
	rcu.Wait()
	m.copy(m.dropUnproven)
	atomic.StoreUint64(&m.Memory.Head().Moving, 0)
}

// Cancel cancels the move: the old tables stay in use.
func (m *Move) Cancel() {
	if m.Begun {
		m.Janitor.Freeze(false)
	}
}

func (m *Move) copy(proven func(*objects.XDPFlow)) {
	m.Lost = 0
	if m.Previous.Any() {
		for _, t := range m.Previous.Proven {
			m.Lost += m.To.Proven.CopyFrom(t, proven)
		}
		for _, t := range m.Previous.Unproven {
			m.Lost += m.To.Unproven.CopyFrom(t, m.dropEnded)
		}
	}
	if m.From.Proven != m.To.Proven {
		m.Lost += m.To.Proven.CopyFrom(m.From.Proven, proven)
	}
	if m.From.Unproven != m.To.Unproven {
		m.Lost += m.To.Unproven.CopyFrom(m.From.Unproven, m.dropEnded)
	}
	m.Returns.AddReturns(m.To.FullNAT, m.To.Proven, m.To.Unproven)
}

// dropUnproven removes a flow from the new table of unproven ones that has been proven since it was copied there.
func (m *Move) dropUnproven(flow *objects.XDPFlow) {
	place, found := m.To.Unproven.Find(flow)
	if !found {
		return
	}
	m.To.Unproven.Release(place, place.Tag(), func(entry *objects.XDPFlow, state objects.XDPFlowState, _ uint32) bool {
		return flowtable.IsLive(state) && entry.Backend == flow.Backend && entry.Generation == flow.Generation &&
			entry.Source == flow.Source
	})
}

// dropEnded removes an ended flow from the new table of proven flows, whose key this copied unproven flow has: a lookup
// would find the ended one first.
func (m *Move) dropEnded(flow *objects.XDPFlow) {
	place, found := m.To.Proven.Find(flow)
	if !found {
		return
	}
	m.To.Proven.Release(place, place.Tag(), func(_ *objects.XDPFlow, state objects.XDPFlowState, _ uint32) bool {
		return !flowtable.IsLive(state) && state < objects.XDPFlowStateFLOW_AFFINITY_NEW
	})
}
