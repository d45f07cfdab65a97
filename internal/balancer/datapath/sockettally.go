// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// tally is how many counted sockets each backend has, by its index, and each service, by its id.
type socketTally struct {
	backends, services map[uint32]uint32
	// sockets are all that are remembered.
	sockets uint64
}

// tallySockets walks over what is remembered of sockets.
func tallySockets(known *ebpf.Map) (t socketTally, err error) {
	t.backends, t.services = map[uint32]uint32{}, map[uint32]uint32{}
	err = eachSocket(known, func(s *objects.LocalLocalSocket) {
		t.sockets++
		for i := range s.Peers {
			if p := &s.Peers[i]; p.Counted != 0 {
				t.backends[p.Backend]++
				t.services[p.Service]++
			}
		}
	})
	return t, err
}

// socketBatch is how many of them are read by one system call.
const socketBatch = 512

// eachSocket calls do for each socket that is remembered. One that comes or goes meanwhile may be
// left out.
func eachSocket(known *ebpf.Map, do func(*objects.LocalLocalSocket)) error {
	keys, values := make([]uint64, socketBatch), make([]objects.LocalLocalSocket, socketBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := known.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			do(&values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading what is remembered of sockets: %v", err)
		}
	}
}
