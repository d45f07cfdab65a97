// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// foreignTable is a table of flows as another build has laid it out, by which packets still go.
type foreignTable struct {
	*flowReading
	m      *ebpf.Map
	memory mapmem.Storage
}

// openForeign maps a table of another layout; close lets go of it. The map is then the table's.
func openForeign(m *ebpf.Map, reading *flowReading) (*foreignTable, error) {
	if m.Type() != ebpf.Array || int(m.ValueSize()) != reading.bucket {
		return nil, fmt.Errorf("%w: %s has values of %d bytes, and its buckets %d by the snapshot", snapshot.ErrDamaged, m, m.ValueSize(), reading.bucket)
	}
	memory, err := mapmem.Map(m)
	if err != nil {
		return nil, err
	}
	return &foreignTable{reading, m, memory}, nil
}

func (t *foreignTable) close() {
	t.memory.Unmap()
	t.m.Close()
}

// isOf says whether the table is of that map.
func (t *foreignTable) isOf(m *ebpf.Map) bool { return mapmem.SameMap(t.m, m) }

// size is what the table takes, in bytes.
func (t *foreignTable) size() uint64 { return uint64(t.m.MaxEntries()) * uint64(t.bucket) }

// room says how many buckets of ours hold as many flows.
func (t *foreignTable) room() uint32 {
	return uint32((uint64(t.m.MaxEntries())*uint64(t.places) + uint64(flowsPerBucket) - 1) / uint64(flowsPerBucket))
}

// each reads a bucket in words, as packets write it: of a flow, no two halves of a word are of
// different times. One whose tag changes meanwhile comes with the next round.
func (t *foreignTable) each(visit func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32)) {
	words := t.bucket / 8
	copied := make(mapmem.Storage, words)
	for i := range int(t.m.MaxEntries()) {
		live := t.memory[i*words:][:words]
		if !t.some(live) {
			continue
		}
		for at := range live {
			copied[at] = atomic.LoadUint64(&live[at])
		}
		for at := range t.places {
			tag := tagAt(copied.Bytes(), t.tags, at)
			if tag == 0 || tag == t.busy {
				continue
			}
			flow, state, seen := t.flowAt(copied.Bytes(), at)
			if again := t.tags + 2*at; uint16(atomic.LoadUint64(&live[again/8])>>(again%8*8)) == tag && state != objects.XDPFlowStateFLOW_FREE {
				visit(&flow, state, seen)
			}
		}
	}
}

// some says whether a bucket has any flow.
func (t *foreignTable) some(bucket mapmem.Storage) bool {
	all := bucket.Bytes()[t.tags:][:2*t.places]
	for _, b := range all {
		if b != 0 {
			return true
		}
	}
	return false
}

func tagAt(bucket []byte, tags, at int) uint16 { return binary.NativeEndian.Uint16(bucket[tags+2*at:]) }

// flowAt returns a flow of a bucket as it is here.
func (r *flowReading) flowAt(bucket []byte, at int) (flow objects.XDPFlow, state objects.XDPFlowState, seen uint32) {
	theirs, ours := bucket[r.flows+at*r.flow:][:r.flow], mapmem.Storage(flowWordsOf(&flow)[:]).Bytes()
	for _, c := range r.copies {
		from := theirs[c.from:][:c.size]
		if c.unlessZero && allZero(from) {
			continue
		}
		copy(ours[c.to:], from)
	}
	return flow, r.state[bucket[r.states+at]], binary.NativeEndian.Uint32(bucket[r.seen+4*at:])
}

func allZero(bytes []byte) bool {
	for _, b := range bytes {
		if b != 0 {
			return false
		}
	}
	return true
}
