// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// socketTally is the number of counted sockets of each backend, by its index, and of each service, by its id.
type socketTally struct {
	Backends, Services map[uint32]uint32
	// Sockets is the number of all remembered sockets.
	Sockets uint64
}

// TallySockets counts the entries of sockets.
func TallySockets(known *ebpf.Map) (t socketTally, err error) {
	t.Backends, t.Services = map[uint32]uint32{}, map[uint32]uint32{}
	err = EachSocket(known, func(s *objects.LocalLocalSocket) {
		t.Sockets++
		for i := range s.Peers {
			if p := &s.Peers[i]; p.Counted != 0 {
				t.Backends[p.Backend]++
				t.Services[p.Service]++
			}
		}
	})
	return t, err
}

// socketBatch is how many entries one system call reads.
const socketBatch = 512

// EachSocket calls do for each remembered socket. It may skip a socket that is added or removed meanwhile.
func EachSocket(known *ebpf.Map, do func(*objects.LocalLocalSocket)) error {
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
			return fmt.Errorf("reading the table of sockets: %v", err)
		}
	}
}
