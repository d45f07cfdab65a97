// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/rcu"
)

// move brings what is remembered from one set of tables to another, of other sizes or of
// another layout, while packets go on: once when the programs that use the new ones are ready,
// and once more when those that use the old ones have gone.
type move struct {
	janitor  *flowtable.Janitor
	from, to *shared
	// previous are tables that a process before has left besides.
	previous *previousFlows
	// returns makes the entries anew that lead to the flows of full NAT.
	returns flowtable.ReplyKeys
	// memory is that of the programs that use the new tables.
	memory *generation.Memory
	begun  bool
	// lost is for how many flows there was no room when they were copied last.
	lost int
}

// moveBound is how long packets of flows that are not known wait at most for the end of a move: beyond
// the time that copies take, for a process may be killed in the middle of one.
const moveBound = 10 * time.Second

// previousFlows are tables that packets go by, or went by last, and that are not among the shared
// maps: they are laid out differently, or were about to be replaced when a process was killed.
type previousFlows struct {
	proven, unproven []previousTable
	// bytes is what those take that another layout has.
	bytes uint64
}

// previousTable is one of them.
type previousTable interface {
	flowtable.Source
	// IsOf says whether it is that map.
	IsOf(*ebpf.Map) bool
	Close()
}

func (f *previousFlows) close() {
	if f == nil {
		return
	}
	for _, tables := range [][]previousTable{f.proven, f.unproven} {
		for _, t := range tables {
			t.Close()
		}
	}
	f.proven, f.unproven = nil, nil
}

func (f *previousFlows) any() bool { return f != nil && len(f.proven)+len(f.unproven) > 0 }

// begin copies what there is, and again what has changed while that took. From then on until the
// janitor is told of the new tables, nothing is forgotten: it would be in one and not in the other.
func (m *move) begin() {
	if m.from == nil || m.begun || !m.needed() {
		return
	}
	m.begun = true
	m.janitor.Freeze(true)
	m.copy(nil)
	m.copy(m.leaveUnproven)
	atomic.StoreUint64(&m.memory.Head().Moving, uint64(flowtable.Monotonic()+moveBound))
}

func (m *move) needed() bool {
	return m.from.proven != m.to.proven || m.from.unproven != m.to.unproven || m.previous.any()
}

// finish copies what packets have begun and ended since: at once, for until then the new programs do not
// know it, and once more when no old program runs any more. Until then these hold back what may be of such
// a flow (flows_move() in bpf/balancer/flow/track.h).
func (m *move) finish() {
	if !m.begun {
		return
	}
	m.copy(m.leaveUnproven)
	rcu.Wait()
	m.copy(m.leaveUnproven)
	atomic.StoreUint64(&m.memory.Head().Moving, 0)
}

// cancel leaves it at the old tables.
func (m *move) cancel() {
	if m.begun {
		m.janitor.Freeze(false)
	}
}

func (m *move) copy(proven func(*objects.XDPFlow)) {
	m.lost = 0
	if m.previous.any() {
		for _, t := range m.previous.proven {
			m.lost += m.to.proven.Adopt(t, proven)
		}
		for _, t := range m.previous.unproven {
			m.lost += m.to.unproven.Adopt(t, m.leaveEnded)
		}
	}
	if m.from.proven != m.to.proven {
		m.lost += m.to.proven.Adopt(m.from.proven, proven)
	}
	if m.from.unproven != m.to.unproven {
		m.lost += m.to.unproven.Adopt(m.from.unproven, m.leaveEnded)
	}
	m.returns.Lead(m.to.fullNAT, m.to.proven, m.to.unproven)
}

// leaveUnproven takes a flow out of the new table of unproven ones that has been proven since it
// was copied there.
func (m *move) leaveUnproven(flow *objects.XDPFlow) {
	place, there := m.to.unproven.Find(flow)
	if !there {
		return
	}
	m.to.unproven.Release(place, place.Tag(), func(is *objects.XDPFlow, state objects.XDPFlowState, _ uint32) bool {
		return flowtable.IsLive(state) && is.Backend == flow.Backend && is.Generation == flow.Generation &&
			is.Source == flow.Source
	})
}

// leaveEnded takes a flow out of the new table of proven ones that was over when it was copied, and in
// whose place a packet has begun this unproven one: it would be found first.
func (m *move) leaveEnded(flow *objects.XDPFlow) {
	place, there := m.to.proven.Find(flow)
	if !there {
		return
	}
	m.to.proven.Release(place, place.Tag(), func(_ *objects.XDPFlow, state objects.XDPFlowState, _ uint32) bool {
		return !flowtable.IsLive(state) && state < objects.XDPFlowStateFLOW_AFFINITY_NEW
	})
}
