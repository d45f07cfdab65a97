// SPDX-License-Identifier: Apache-2.0

// Package loader loads the programs that forward packets, with their memory and maps. The programs forward nothing
// until another package attaches them. Closing them frees the programs and not the memory, which others may use.
package loader

import (
	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/deadcode"
)

// Kind is one of the two programs that forward packets, and how to load it.
type Kind struct {
	// Name is its name in the object, and Load returns the object.
	Name string
	Load func() (*ebpf.CollectionSpec, error)
	// Traced returns the same program, compiled to record packets for traces and captures.
	Traced func() (*ebpf.CollectionSpec, error)
	// NoAttachType loads it without an attach type. A link accepts only programs of its first program's type, and older
	// versions of the library set none.
	NoAttachType bool
	// Dispatched loads it for a slot of libxdp's dispatcher.
	Dispatched bool
}

// Is reports whether programs of one kind are of the other as well.
func (k Kind) Is(other Kind) bool {
	return k.Name == other.Name && k.NoAttachType == other.NoAttachType && k.Dispatched == other.Dispatched
}

// The two programs, by their hook.
var (
	XDP = Kind{Name: objects.XDPProgJeoulXdp, Load: objects.XDP.Spec,
		Traced: objects.Embed(traced.LoadXdp).Spec}
	TC = Kind{Name: objects.TCProgJeoulTc, Load: objects.TC.Spec,
		Traced: objects.Embed(traced.LoadTc).Spec}
)

// KindFor returns the program for a hook.
func KindFor(hook lb.Hook) Kind {
	if hook == lb.HookTC {
		return TC
	}
	return XDP
}

// spec returns the traced program, or the plain one where t is nil.
func (k Kind) spec(t *traced.Tracing) (*ebpf.CollectionSpec, error) {
	if t == nil {
		return k.Load()
	}
	return k.Traced()
}

// Kernel creates the maps and loads the programs. Tests replace it by one that reuses loaded programs, as verification
// would be most of the tests' time.
type Kernel struct {
	// NewMap creates an empty map.
	NewMap func(*ebpf.MapSpec) (*ebpf.Map, error)
	// Load loads the programs of a spec with the given maps, by their names, instead of new ones.
	Load func(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (*ebpf.Collection, error)
}

// ThisKernel is the kernel that the process runs on.
var ThisKernel = Kernel{ebpf.NewMap, LoadReduced}

// LoadReduced loads the programs of a spec without the code that its constants make unreachable. Verification takes
// most of the time of a change; a part of it is the verifier's own removal of unreachable code, whose time grows with
// the square of the program's length, unless that code was removed before.
func LoadReduced(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (*ebpf.Collection, error) {
	if err := deadcode.Remove(spec); err != nil {
		return nil, err
	}
	return ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
}
