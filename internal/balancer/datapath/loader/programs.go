// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Programs are the programs of a generation, with the memory that they read. They forward nothing until they are
// attached.
type Programs struct {
	// Collections hold the loaded programs and maps.
	Collections []*ebpf.Collection
	// Programs[i] is for Ports[i]; all have the same maps.
	Programs []*ebpf.Program
	Ports    []attach.Port
	// Memory is the memory of the generation.
	Memory *generation.Memory
	// Tracing has the maps of traced programs, and Answers is the map of answers to health checks; nil where the
	// programs were loaded without.
	Tracing *traced.Tracing
	Answers *ebpf.Map
	// Set is the number of the set of pins, if the generation is kept. Adopted: another process has loaded it, and its
	// memory must not be changed.
	Set     uint64
	Adopted bool
	// Watchdog is the timer that detects the end of the process; nil where there is none.
	Watchdog *ebpf.Collection
}

// PortAt returns the index of a port among the generation's interfaces; -1 if it is none of them.
func (g *Programs) PortAt(p attach.Port) int { return slices.IndexFunc(g.Ports, p.SameInterface) }

// Close closes the handles of the programs and maps. Attached programs stay: the kernel keeps the objects that they
// use. The memory is closed separately, since others may use it.
func (g *Programs) Close() {
	if g == nil {
		return
	}
	for _, collection := range g.Collections {
		collection.Close()
	}
	if g.Watchdog != nil {
		g.Watchdog.Close()
	}
}

// LoadPrograms loads the programs for a memory, without an effect on those in use. With tracing, it loads the traced
// programs.
func (k Kernel) LoadPrograms(program Kind, ports []attach.Port, m *generation.Memory, shared *sharedmaps.Maps,
	tracing *traced.Tracing,
	answers *ebpf.Map) (*Programs, error) {
	constants := m.Constants
	for _, p := range ports {
		// A detached program has no interface, and may send to any.
		if p.Index != 0 {
			constants.Interfaces[constants.InterfacesCount] = uint32(p.Index)
			constants.InterfacesCount++
		}
	}
	programs := &Programs{Ports: ports, Memory: m, Tracing: tracing, Answers: answers}
	for _, p := range ports {
		constants.Mac, constants.Interface = [lb.MACLength]uint8(p.MAC), uint32(p.Index)
		constants.Vlans, constants.VlansCount = vlansOn(p, ports)
		generation.PutNear(&constants, m.Hairpin.At(p.Index), m.Lists)
		if err := programs.add(k, program, p, constants, shared, tracing); err != nil {
			programs.Close()
			return nil, err
		}
	}
	return programs, nil
}

// vlansOn returns the VLANs of those ports that are VLAN interfaces on p, and their number.
func vlansOn(p attach.Port, ports []attach.Port) (vlans [lb.MaxInterfaces]uint32, count uint32) {
	for _, other := range ports {
		if other.VLAN != 0 && other.Parent == p.Index {
			vlans[count] = other.VLAN
			count++
		}
	}
	return vlans, count
}

// add loads the program for one more port.
func (g *Programs) add(
	k Kernel, program Kind, p attach.Port, constants objects.XDPSettings, shared *sharedmaps.Maps,
	tracing *traced.Tracing,
) error {
	spec, replacements, err := g.Specify(program, constants, shared, tracing)
	if err != nil {
		return err
	}
	if program.Dispatched {
		return g.addDispatched(program, p, spec, replacements)
	}
	if tracing != nil && !tracing.IsDryRun() {
		array, err := g.addPlain(k, program, constants, shared, spec, replacements)
		if err != nil {
			return err
		}
		defer array.Close()
	}
	collection, err := k.Load(spec, replacements)
	if err != nil {
		return attach.LoadError(err)
	}
	g.Collections = append(g.Collections, collection)
	g.Programs = append(g.Programs, collection.Programs[program.Name])
	return nil
}

// addPlain loads the plain program of a port, to which the traced program, of spec traces, passes packets that it does
// not record. The caller closes the map that joins the two after it has loaded the traced program.
func (g *Programs) addPlain(k Kernel, program Kind, constants objects.XDPSettings, shared *sharedmaps.Maps,
	traces *ebpf.CollectionSpec, replacements map[string]*ebpf.Map) (*ebpf.Map, error) {
	spec, plain, err := g.Specify(program, constants, shared, nil)
	if err != nil {
		return nil, err
	}
	collection, err := k.Load(spec, plain)
	if err != nil {
		return nil, attach.LoadError(err)
	}
	g.Collections = append(g.Collections, collection)
	array, err := traced.SkipTo(collection.Programs[program.Name], traces, replacements)
	if err != nil {
		return nil, fmt.Errorf("joining the traced program to the plain one: %w", err)
	}
	return array, nil
}

// Specify returns the spec of the program with its constants, and the maps that it shares with others.
func (g *Programs) Specify(
	program Kind, constants objects.XDPSettings, shared *sharedmaps.Maps, tracing *traced.Tracing,
) (
	*ebpf.CollectionSpec, map[string]*ebpf.Map, error,
) {
	spec, err := program.spec(tracing)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	spec.Maps[objects.GenerationSection].ValueSize = g.Memory.Map.ValueSize()
	replacements := shared.ByName()
	replacements[objects.GenerationSection] = g.Memory.Map
	putAnswers(spec, g.Answers, &constants, replacements)
	putTracing(tracing, spec, &constants, replacements)
	if program.NoAttachType {
		spec.Programs[program.Name].AttachType = ebpf.AttachNone
	}
	if err := spec.Variables[objects.XDPVarLoaded].Set(constants); err != nil {
		return nil, nil, fmt.Errorf("setting the program's constants: %v", err)
	}
	shared.SetSizes(spec)
	return spec, replacements, nil
}

// addDispatched loads the program for one more port into a slot of its dispatcher.
func (g *Programs) addDispatched(program Kind, p attach.Port, spec *ebpf.CollectionSpec,
	replacements map[string]*ebpf.Map) error {
	target, err := libxdp.TargetOf(p.Index)
	if err != nil {
		return fmt.Errorf("%w: %w", libxdp.ErrUnsupported, err)
	}
	defer target.Close()
	target.Prepare(spec.Programs[program.Name])
	collection, err := LoadReduced(spec, replacements)
	if err != nil {
		return libxdp.LoadError(err)
	}
	g.Collections = append(g.Collections, collection)
	g.Programs = append(g.Programs, collection.Programs[program.Name])
	return nil
}

// putAnswers gives a program the map of answers; where there is none, a map of one entry that is never read.
func putAnswers(spec *ebpf.CollectionSpec, answers *ebpf.Map, constants *objects.XDPSettings,
	replacements map[string]*ebpf.Map) {
	if answers == nil {
		spec.Maps[objects.XDPMapCheckAnswers].MaxEntries = 1
		return
	}
	constants.Checks = 1
	replacements[objects.XDPMapCheckAnswers] = answers
}

// putTracing gives a traced program its further maps; a plain program has none.
func putTracing(t *traced.Tracing, spec *ebpf.CollectionSpec, constants *objects.XDPSettings,
	replacements map[string]*ebpf.Map) {
	if t == nil {
		return
	}
	if t.IsDryRun() {
		constants.DryRun = 1
	}
	t.Replace(spec, replacements)
}

// NewTracing creates the maps of traced programs: see traced.New.
func NewTracing(dryRun bool) (*traced.Tracing, error) {
	spec, err := XDP.Traced()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	t, err := traced.New(spec, dryRun)
	if err != nil {
		return nil, attach.LoadError(err)
	}
	return t, nil
}
