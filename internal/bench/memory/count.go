// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/bench/harness"
	"github.com/jeoul/jeoul/internal/datapath"
)

// What struct flow_bucket begins with: two bytes for each of eight flows, 0 where
// there is none.
const (
	bucketFlows = 8
	tagLength   = 2
)

// read is how many buckets are read at a time.
const read = 4096

// remembered counts the flows in a balancer's tables, by the tags that are there; it
// does not ask the balancer.
func remembered(balancer *datapath.Datapath) (flows uint64, err error) {
	err = harness.EachMap(balancer.Program(), func(name string, m *ebpf.Map) error {
		if _, ok := tables[name]; !ok {
			return nil
		}
		n, err := occupied(m)
		flows += n
		return err
	})
	return flows, err
}

// occupied counts the flows of one table.
func occupied(m *ebpf.Map) (flows uint64, err error) {
	size := int(m.ValueSize())
	keys, values := make([]uint32, read), make([]byte, read*size)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return 0, fmt.Errorf("reading a table of flows: %w", err)
		}
		for bucket := range n {
			tags := values[bucket*size:]
			for i := range bucketFlows {
				if binary.NativeEndian.Uint16(tags[i*tagLength:]) != 0 {
					flows++
				}
			}
		}
		if err != nil {
			return flows, nil
		}
	}
}
