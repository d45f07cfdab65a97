// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// loadedPrograms are the programs of a generation, with the memory that they go by. They
// forward nothing until they are attached.
type loadedPrograms struct {
	collections []*ebpf.Collection
	// programs[i] is for ports[i]; all have the same maps.
	programs []*ebpf.Program
	ports    []attach.Port
	memory   *generation.Memory
	// tracing is what the programs were loaded with, and answers those of health checks.
	tracing *tracing
	answers *ebpf.Map
	// set is the number of its pins, if it is kept. adopted: another process has loaded it,
	// and nothing in its memory can be changed.
	set     uint64
	adopted bool
	// watch is what notices that the process is gone; nil where nothing does.
	watch *ebpf.Collection
	// state and places are those of the register, and words names things while a
	// trace runs; nil until then.
	state  lb.State
	places *generation.Places
	words  *words
}

// close frees the programs. What is attached goes on working: the kernel holds what
// it uses. The memory is closed by itself: others may have it.
func (g *loadedPrograms) close() {
	if g == nil {
		return
	}
	for _, collection := range g.collections {
		collection.Close()
	}
	if g.watch != nil {
		g.watch.Close()
	}
}

// makeMemory makes the map of a generation for a configuration, and puts that there.
// It returns where the services are, in the order of the change's records.
func (d *Datapath) makeMemory(c *generation.Revision, shared *sharedmaps.Maps) (
	*generation.Memory, []generation.Placement, error,
) {
	plan, err := generation.CapacityFor(c)
	if err != nil {
		return nil, nil, err
	}
	spec, err := xdpProgram.load()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	mapSpec := spec.Maps[objects.GenerationSection].Copy()
	mapSpec.Name, mapSpec.ValueSize, mapSpec.Flags = "generation", plan.Bytes(), unix.BPF_F_MMAPABLE
	// Those are of the few bytes that the object file has in its place.
	mapSpec.Contents, mapSpec.Key, mapSpec.Value = nil, nil, nil
	made, err := d.kernel.newMap(mapSpec)
	if err != nil {
		return nil, nil, attach.LoadError(
			fmt.Errorf("making the map of the configuration with %d bytes: %w", mapSpec.ValueSize, err))
	}
	m, homes, err := generation.FillMap(made, &plan, c, &d.mu)
	if err != nil {
		return nil, nil, err
	}
	m.Head().Clock = d.janitor.Now()
	c.StoreHead(m.Head())
	m.Head().Standby = d.standby
	m.Head().Patience = flowtable.Milliseconds(d.options.Orphan)
	m.Constants.TooBigRate = d.options.TooBigRate
	m.Constants.FlowBuckets = shared.Flows.MaxEntries()
	m.Constants.NewcomerBuckets = shared.Newcomers.MaxEntries()
	m.Constants.ReturnBuckets = shared.Returns.MaxEntries()
	m.Constants.FlowSecret = d.secret
	return m, homes, nil
}

// loadPrograms loads the programs for a memory. Nothing that is in use changes. With
// tracing, the program is the one that tells of packets.
func (k kernel) loadPrograms(program programKind, ports []attach.Port, m *generation.Memory, shared *sharedmaps.Maps,
	tracing *tracing,
	answers *ebpf.Map) (*loadedPrograms, error) {
	constants := m.Constants
	for _, p := range ports {
		// A detached program has no interface, and may send to any.
		if p.Index != 0 {
			constants.Interfaces[constants.InterfacesCount] = uint32(p.Index)
			constants.InterfacesCount++
		}
	}
	made := &loadedPrograms{ports: ports, memory: m, tracing: tracing, answers: answers}
	for _, p := range ports {
		constants.Mac, constants.Interface = [lb.MACLength]uint8(p.MAC), uint32(p.Index)
		generation.PutNear(&constants, m.Hairpin.At(p.Index), m.Lists)
		if err := made.add(k, program, p, constants, shared, tracing); err != nil {
			made.close()
			return nil, err
		}
	}
	return made, nil
}

// add loads the program for one more port.
func (g *loadedPrograms) add(
	k kernel, program programKind, p attach.Port, constants objects.XDPSettings, shared *sharedmaps.Maps,
	tracing *tracing,
) error {
	spec, replacements, err := g.specify(program, constants, shared, tracing)
	if err != nil {
		return err
	}
	if program.dispatched {
		return g.addDispatched(program, p, spec, replacements)
	}
	collection, err := k.load(spec, replacements)
	if err != nil {
		return attach.LoadError(err)
	}
	g.collections = append(g.collections, collection)
	g.programs = append(g.programs, collection.Programs[program.name])
	return nil
}

// specify returns the program with its constants, and the maps that it shares with others.
func (g *loadedPrograms) specify(
	program programKind, constants objects.XDPSettings, shared *sharedmaps.Maps, tracing *tracing,
) (
	*ebpf.CollectionSpec, map[string]*ebpf.Map, error,
) {
	spec, err := tracing.load(program)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	spec.Maps[objects.GenerationSection].ValueSize = g.memory.Map.ValueSize()
	replacements := shared.ByName()
	replacements[objects.GenerationSection] = g.memory.Map
	putAnswers(spec, g.answers, &constants, replacements)
	tracing.put(spec, &constants, replacements)
	if program.unspecific {
		spec.Programs[program.name].AttachType = ebpf.AttachNone
	}
	if err := spec.Variables[objects.XDPVarLoaded].Set(constants); err != nil {
		return nil, nil, fmt.Errorf("setting the program's constants: %v", err)
	}
	shared.Put(spec)
	return spec, replacements, nil
}

// addDispatched loads the program for one more port into a slot of its dispatcher.
func (g *loadedPrograms) addDispatched(program programKind, p attach.Port, spec *ebpf.CollectionSpec,
	replacements map[string]*ebpf.Map) error {
	target, err := libxdp.TargetOf(p.Index)
	if err != nil {
		return fmt.Errorf("%w: %w", libxdp.ErrUnsupported, err)
	}
	defer target.Close()
	target.Take(spec.Programs[program.name])
	collection, err := loadReduced(spec, replacements)
	if err != nil {
		return libxdp.Refused(err)
	}
	g.collections = append(g.collections, collection)
	g.programs = append(g.programs, collection.Programs[program.name])
	return nil
}
