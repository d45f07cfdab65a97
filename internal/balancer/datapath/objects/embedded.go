// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"sync"
	"weak"

	"github.com/cilium/ebpf"
)

// Embedded is an eBPF object that is embedded in this program. Reading it takes some 50 ms of a core and some MiB, and
// one change needs it several times: for each interface, and for the sizes of maps. So a weak pointer caches it until
// the next garbage collection.
type Embedded struct {
	read func() (*ebpf.CollectionSpec, error)
	mu   sync.Mutex
	last weak.Pointer[ebpf.CollectionSpec]
}

// Spec returns a copy of the object's programs and maps, which the caller may change.
func (e *Embedded) Spec() (*ebpf.CollectionSpec, error) {
	original, err := e.Original()
	if err != nil {
		return nil, err
	}
	return original.Copy(), nil
}

// Original returns the cached spec, which callers must not change.
func (e *Embedded) Original() (*ebpf.CollectionSpec, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if spec := e.last.Value(); spec != nil {
		return spec, nil
	}
	spec, err := e.read()
	if err == nil {
		e.last = weak.Make(spec)
	}
	return spec, err
}

// The objects that are loaded more than once.
var (
	XDP   = Embedded{read: LoadXDP}
	TC    = Embedded{read: LoadTC}
	Local = Embedded{read: LoadLocal}
)

// Embed returns the object that read reads.
func Embed(read func() (*ebpf.CollectionSpec, error)) *Embedded { return &Embedded{read: read} }

// GenerationSection is the section of the programs' memory (bpf/balancer/maps.h), and the name of its map.
const GenerationSection = ".data.generation"
