// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
)

// The beginning of struct flow_bucket: two bytes for each of eight flows, 0 for none.
const (
	bucketFlows = 8
	tagLength   = 2
)

// bucketBatch is the number of buckets that are read at a time.
const bucketBatch = 4096

// remembered counts the flows in a balancer's tables, by the tags in the tables. It does not ask the balancer.
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
	memory, err := m.Memory()
	if err != nil {
		return 0, fmt.Errorf("reading a table of flows: %w", err)
	}
	size := int64(m.ValueSize())
	some := make([]byte, bucketBatch*size)
	for at, end := int64(0), int64(m.MaxEntries())*size; at < end; at += int64(len(some)) {
		some = some[:min(int64(len(some)), end-at)]
		if _, err := memory.ReadAt(some, at); err != nil {
			return 0, fmt.Errorf("reading a table of flows: %w", err)
		}
		for bucket := range slices.Chunk(some, int(size)) {
			for tag := range slices.Chunk(bucket[:bucketFlows*tagLength], tagLength) {
				if binary.NativeEndian.Uint16(tag) != 0 {
					flows++
				}
			}
		}
	}
	return flows, nil
}
