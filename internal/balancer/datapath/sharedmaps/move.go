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

// Move copies flows from one set of tables to another, of other sizes or of another layout, while packets go on: once
// when the programs that use the new ones are ready, and once more when those that use the old ones have gone.
type Move struct {
	Janitor  *flowtable.Janitor
	From, To *Maps
	// Previous are further tables that an earlier process has left.
	Previous *PreviousFlows
	// Returns makes the entries again that lead to the flows of full NAT.
	Returns flowtable.ReplyKeys
	// Memory is that of the programs that use the new tables.
	Memory *generation.Memory
	// Begun says that Begin has copied flows.
	Begun bool
	// Lost is for how many flows there was no room when they were copied last.
	Lost int
}

// moveTimeout is how long at most packets of unknown flows are dropped during a move: longer than copying takes, and
// bounded since a process may be killed in the middle of one.
const moveTimeout = 10 * time.Second

// PreviousFlows are tables that packets go by, or went by last, and that are not among the shared
// maps: they are laid out differently, or were about to be replaced when a process was killed.
type PreviousFlows struct {
	Proven, Unproven []PreviousTable
	// Bytes is the memory of those that have another layout.
	Bytes uint64
}

// PreviousTable is a table of flows among PreviousFlows.
type PreviousTable interface {
	flowtable.Source
	// IsOf reports whether it is that map.
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

// Begin copies all flows, and then those that have changed meanwhile. From then on the janitor deletes no flow, until
// it works on the new tables: a deleted flow would remain in one of the two.
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

// Finish copies the beginnings and ends of flows since Begin: at once, because the new programs do not know them
// before, and once more when no old program runs any more. Until then the new programs drop packets that may be of such
// a flow (flows_are_moving() in bpf/balancer/flow/track.h).
func (m *Move) Finish() {
	if !m.Begun {
		return
	}
	m.copy(m.dropUnproven)
	rcu.Wait()
	m.copy(m.dropUnproven)
	atomic.StoreUint64(&m.Memory.Head().Moving, 0)
}

// Cancel ends the move, and the old tables stay in use.
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
	place, there := m.To.Unproven.Find(flow)
	if !there {
		return
	}
	m.To.Unproven.Release(place, place.Tag(), func(is *objects.XDPFlow, state objects.XDPFlowState, _ uint32) bool {
		return flowtable.IsLive(state) && is.Backend == flow.Backend && is.Generation == flow.Generation &&
			is.Source == flow.Source
	})
}

// dropEnded removes a flow from the new table of proven ones that was over when it was copied, and in whose place a
// packet has begun this unproven one: the ended one would be found first.
func (m *Move) dropEnded(flow *objects.XDPFlow) {
	place, there := m.To.Proven.Find(flow)
	if !there {
		return
	}
	m.To.Proven.Release(place, place.Tag(), func(_ *objects.XDPFlow, state objects.XDPFlowState, _ uint32) bool {
		return !flowtable.IsLive(state) && state < objects.XDPFlowStateFLOW_AFFINITY_NEW
	})
}
