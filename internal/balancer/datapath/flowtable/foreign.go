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

// ForeignTable is a table of flows in another build's layout, which the attached programs still use.
type ForeignTable struct {
	*ForeignLayout
	Map    *ebpf.Map
	Memory mapmem.Storage
}

// OpenForeign maps a table of another layout; Close releases it. The table then owns the map.
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

// Close unmaps the table and closes its map.
func (t *ForeignTable) Close() {
	t.Memory.Unmap()
	t.Map.Close()
}

// IsOf reports whether the table is in that map.
func (t *ForeignTable) IsOf(m *ebpf.Map) bool { return mapmem.SameMap(t.Map, m) }

// Size is the memory of the table, in bytes.
func (t *ForeignTable) Size() uint64 { return uint64(t.Map.MaxEntries()) * uint64(t.Bucket) }

// BucketsNeeded returns how many buckets of this build hold as many flows.
func (t *ForeignTable) BucketsNeeded() uint32 {
	return uint32((uint64(t.Map.MaxEntries())*uint64(t.Places) + uint64(PerBucket) - 1) / uint64(PerBucket))
}

// Each reads a bucket word by word, as packets write it, so that no word is torn. A flow whose tag changes meanwhile is
// left to the next round.
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

// flowAt returns a flow of a bucket in this build's layout.
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
