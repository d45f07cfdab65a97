// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"sync"
	"weak"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
)

// embedded is an eBPF program that is part of this one. Reading it takes some 50 ms of a core and
// some MiB, and one change asks for it several times: for each interface, and for the sizes of maps.
// So what was read stays until the garbage collector wants its memory.
type embedded struct {
	read func() (*ebpf.CollectionSpec, error)
	mu   sync.Mutex
	last weak.Pointer[ebpf.CollectionSpec]
}

// spec returns a copy, which is the caller's to change.
func (e *embedded) spec() (*ebpf.CollectionSpec, error) {
	original, err := e.original()
	if err != nil {
		return nil, err
	}
	return original.Copy(), nil
}

func (e *embedded) original() (*ebpf.CollectionSpec, error) {
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

var (
	embeddedXDP       = embedded{read: loadXdp}
	embeddedTC        = embedded{read: loadTc}
	embeddedTracedXDP = embedded{read: traced.LoadXdp}
	embeddedTracedTC  = embedded{read: traced.LoadTc}
)
