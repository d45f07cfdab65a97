// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/host/deadcode"
)

// kernel makes the maps and loads the programs by which packets go. Tests have another one, which lends programs that
// are loaded already, as verifying them would be most of the tests' time.
type kernel struct {
	// newMap makes an empty map.
	newMap func(*ebpf.MapSpec) (*ebpf.Map, error)
	// load loads the programs of a spec with maps in the place of its own, by their names.
	load func(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (*ebpf.Collection, error)
}

// thisKernel is the kernel that the process runs on.
var thisKernel = kernel{ebpf.NewMap, loadReduced}

// onNew is called for a new data plane before it is used. Tests give it another kernel.
var onNew = func(*Datapath) {}

// loadReduced loads the programs of a spec without what its constants make unreachable. Verifying a program takes most
// of the time of a change, and removing what this configuration does not need a part of that which grows with the
// square of its length, unless it is gone before.
func loadReduced(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (*ebpf.Collection, error) {
	if err := deadcode.Remove(spec); err != nil {
		return nil, err
	}
	return ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
}
