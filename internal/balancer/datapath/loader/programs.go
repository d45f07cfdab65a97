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

// Programs are the programs of a generation, with the memory that they go by. They
// forward nothing until they are attached.
type Programs struct {
	// Collections hold the loaded programs and maps.
	Collections []*ebpf.Collection
	// Programs[i] is for Ports[i]; all have the same maps.
	Programs []*ebpf.Program
	Ports    []attach.Port
	// Memory is the generation that they go by.
	Memory *generation.Memory
	// Tracing has the maps that traced programs were loaded with, and Answers is the map that those for health checks
	// were.
	Tracing *traced.Tracing
	Answers *ebpf.Map
	// Set is the number of its pins, if it is kept. Adopted: another process has loaded it,
	// and nothing in its memory can be changed.
	Set     uint64
	Adopted bool
	// Watchdog is the timer that notices that the process is gone; nil where there is none.
	Watchdog *ebpf.Collection
}

// PortAt returns the index of a port among the generation's interfaces; -1 if it is none of them.
func (g *Programs) PortAt(p attach.Port) int { return slices.IndexFunc(g.Ports, p.SameInterface) }

// Close frees the programs. Attached programs go on working: the kernel holds what they use. The memory is closed
// separately: others may have it.
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

// LoadPrograms loads the programs for a memory. Nothing that is in use changes. With tracing, the programs are the
// traced ones.
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
	made := &Programs{Ports: ports, Memory: m, Tracing: tracing, Answers: answers}
	for _, p := range ports {
		constants.Mac, constants.Interface = [lb.MACLength]uint8(p.MAC), uint32(p.Index)
		generation.PutNear(&constants, m.Hairpin.At(p.Index), m.Lists)
		if err := made.add(k, program, p, constants, shared, tracing); err != nil {
			made.Close()
			return nil, err
		}
	}
	return made, nil
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

// addPlain loads the plain program for a port, which a traced one, of which this is the spec, hands packets to. The map
// of the two is needed until the traced one is loaded.
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

// Specify returns the program with its constants, and the maps that it shares with others.
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

// putAnswers gives a program the map of answers; one of a single entry that is never looked at
// where there is none.
func putAnswers(spec *ebpf.CollectionSpec, answers *ebpf.Map, constants *objects.XDPSettings,
	replacements map[string]*ebpf.Map) {
	if answers == nil {
		spec.Maps[objects.XDPMapCheckAnswers].MaxEntries = 1
		return
	}
	constants.Checks = 1
	replacements[objects.XDPMapCheckAnswers] = answers
}

// putTracing gives a traced program its further maps; a plain one needs none.
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

// NewTracing makes the maps of traced programs: see traced.New.
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
