// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
	"github.com/jeoul/jeoul/internal/balancer/lb"
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
