// SPDX-License-Identifier: Apache-2.0

// Package loader loads the programs that forward packets, with the memory and the maps that they go by. The programs
// forward nothing until another package attaches them. Closing them frees the programs and not the memory, which others
// may use.
package loader

import (
	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/deadcode"
)

// Kind is one of the two programs that forward, and how it is to be loaded.
type Kind struct {
	// Name is its name in the object, and Load returns that.
	Name string
	Load func() (*ebpf.CollectionSpec, error)
	// Traced returns the same program, compiled to record packets for traces and captures.
	Traced func() (*ebpf.CollectionSpec, error)
	// NoAttachType loads it without an attach type. A link takes only programs of its first program's type, and older
	// versions of the library gave none.
	NoAttachType bool
	// Dispatched loads it for a slot of libxdp's dispatcher.
	Dispatched bool
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

// spec returns the program that is loaded with this, which is nil for the plain one.
func (k Kind) spec(t *traced.Tracing) (*ebpf.CollectionSpec, error) {
	if t == nil {
		return k.Load()
	}
	return k.Traced()
}

// Kernel makes the maps and loads the programs by which packets go. Tests have another one, which lends programs that
// are loaded already, as verifying them would be most of the tests' time.
type Kernel struct {
	// NewMap makes an empty map.
	NewMap func(*ebpf.MapSpec) (*ebpf.Map, error)
	// Load loads the programs of a spec with maps in the place of its own, by their names.
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
