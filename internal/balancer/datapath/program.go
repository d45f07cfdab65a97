// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/deadcode"
)

// programKind is one of the two programs.
type programKind struct {
	name string
	load func() (*ebpf.CollectionSpec, error)
	// traced returns the same program, compiled to tell of packets.
	traced func() (*ebpf.CollectionSpec, error)
	// unspecific loads it without an attach type. A link takes only programs of the type that
	// the first had, and the library has not always given one.
	unspecific bool
	// dispatched loads it for a slot of libxdp's dispatcher.
	dispatched bool
}

var (
	xdpProgram = programKind{name: objects.XDPProgJeoulXdp, load: objects.XDP.Spec,
		traced: objects.Embed(traced.LoadXdp).Spec}
	tcProgram = programKind{name: objects.TCProgJeoulTc, load: objects.TC.Spec,
		traced: objects.Embed(traced.LoadTc).Spec}
)

// programOf returns the program for a hook.
func programOf(hook lb.Hook) programKind {
	if hook == lb.HookTC {
		return tcProgram
	}
	return xdpProgram
}

// kindOf returns the program for a way.
func (d *Datapath) kindOf(w attach.Method) programKind {
	kind := d.programs(w.Hook)
	kind.dispatched = w.Dispatched
	return kind
}

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
