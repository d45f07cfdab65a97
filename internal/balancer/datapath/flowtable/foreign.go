// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// ForeignTable is a table of flows in another build's layout, by which packets still go.
type ForeignTable struct {
	*ForeignLayout
	Map    *ebpf.Map
	Memory mapmem.Storage
}

// OpenForeign maps a table of another layout; close releases it. The map is then the table's.
func OpenForeign(m *ebpf.Map, reading *ForeignLayout) (*ForeignTable, error) {
	if m.Type() != ebpf.Array || int(m.ValueSize()) != reading.Bucket {
		return nil, fmt.Errorf("%w: %s has values of %d bytes, and its buckets %d by the snapshot", snapshot.ErrDamaged,
			m, m.ValueSize(), reading.Bucket)
	}
	memory, err := mapmem.Map(m)
	if err != nil {
		return nil, err
	}
	return &ForeignTable{reading, m, memory}, nil
}

// Close takes the table out of our memory and closes its map.
func (t *ForeignTable) Close() {
	t.Memory.Unmap()
	t.Map.Close()
}

// IsOf reports whether the table is of that map.
func (t *ForeignTable) IsOf(m *ebpf.Map) bool { return mapmem.SameMap(t.Map, m) }

// Size is the memory of the table, in bytes.
func (t *ForeignTable) Size() uint64 { return uint64(t.Map.MaxEntries()) * uint64(t.Bucket) }

// BucketsNeeded says how many buckets of ours hold as many flows.
func (t *ForeignTable) BucketsNeeded() uint32 {
	return uint32((uint64(t.Map.MaxEntries())*uint64(t.Places) + uint64(PerBucket) - 1) / uint64(PerBucket))
}

// Each reads a bucket in words, as packets write it: of a flow, no two halves of a word are of
// different times. One whose tag changes meanwhile comes with the next round.
func (t *ForeignTable) Each(visit func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32)) {
	words := t.Bucket / 8
	copied := make(mapmem.Storage, words)
	for i := range int(t.Map.MaxEntries()) {
		live := t.Memory[i*words:][:words]
		if !t.hasFlow(live) {
			continue
		}
		for at := range live {
			copied[at] = atomic.LoadUint64(&live[at])
		}
		for at := range t.Places {
			tag := tagAt(copied.Bytes(), t.Tags, at)
			if tag == 0 || tag == t.busy {
				continue
			}
			flow, state, seen := t.flowAt(copied.Bytes(), at)
			if current := t.Tags + 2*at; uint16(atomic.LoadUint64(&live[current/8])>>(current%8*8)) == tag &&
				state != objects.XDPFlowStateFLOW_FREE {
				visit(&flow, state, seen)
			}
		}
	}
}

// hasFlow reports whether a bucket has a flow.
func (t *ForeignTable) hasFlow(bucket mapmem.Storage) bool {
	all := bucket.Bytes()[t.Tags:][:2*t.Places]
	for _, b := range all {
		if b != 0 {
			return true
		}
	}
	return false
}

func tagAt(bucket []byte, tags, at int) uint16 { return binary.NativeEndian.Uint16(bucket[tags+2*at:]) }

// flowAt returns a flow of a bucket as it is here.
func (r *ForeignLayout) flowAt(bucket []byte, at int) (flow objects.XDPFlow, state objects.XDPFlowState, seen uint32) {
	source, ours := bucket[r.Flows+at*r.Flow:][:r.Flow], mapmem.Storage(WordsOf(&flow)[:]).Bytes()
	for _, c := range r.Copies {
		from := source[c.From:][:c.Size]
		if c.UnlessZero && allZero(from) {
			continue
		}
		copy(ours[c.To:], from)
	}
	return flow, r.State[bucket[r.States+at]], binary.NativeEndian.Uint32(bucket[r.Seen+4*at:])
}

func allZero(bytes []byte) bool {
	for _, b := range bytes {
		if b != 0 {
			return false
		}
	}
	return true
}
