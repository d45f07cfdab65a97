// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
)

// Tester is a tester whose programs are attached to its ports.
type Tester struct {
	spec             Spec
	clients, servers []*device
	maps             map[string]*ebpf.Map
	collections      []*ebpf.Collection
	memories         []mapping

	control  *bpfWireControl
	progress *bpfWireProgress
	shared   *bpfWireShared
	sender   *sender
}

// New attaches a tester's programs to its ports. The caller must close the Tester. Errors: ErrSpec, ErrPort, or an
// error of loading eBPF programs.
func New(ctx context.Context, spec Spec) (*Tester, error) {
	spec, err := spec.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Tester{spec: spec, maps: map[string]*ebpf.Map{}}
	if err := errors.Join(ctx.Err(), t.open()); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Tester) open() error {
	for _, side := range []struct {
		ports   []Port
		devices *[]*device
	}{{t.spec.Clients, &t.clients}, {t.spec.Servers, &t.servers}} {
		for _, p := range side.ports {
			d, err := p.find()
			if err != nil {
				return err
			}
			*side.devices = append(*side.devices, d)
		}
	}
	if err := t.load(); err != nil {
		return err
	}
	for _, d := range append(t.clients[:len(t.clients):len(t.clients)], t.servers...) {
		if err := d.checkPeer(); err != nil {
			return err
		}
	}
	return nil
}

// The names of the programs in bpf/, and of maps whose memory is mapped.
const (
	programSender = "wire_sender"
	programClient = "wire_client"
	programServer = "wire_server"

	mapConnections  = "wire_connections"
	mapControl      = "wire_control_word"
	mapProgress     = "wire_progressed"
	mapShared       = "wire_shared_word"
	mapCounts       = "wire_port_counts"
	mapLatencies    = "wire_latencies"
	mapDevices      = "wire_devices"
	mapUnknownPeers = "wire_unknown_peers"
)

// load loads a program for each port and the sender; all share the maps of the first.
func (t *Tester) load() error {
	spec, err := loadBpf()
	if err != nil {
		return fmt.Errorf("reading the tester's programs: %w", err)
	}
	spec.Maps[mapConnections].MaxEntries = uint32(t.spec.Connections)
	sending, err := t.loadOne(spec, programSender, bpfWirePort{})
	if err != nil {
		return err
	}
	if err := t.mapAll(); err != nil {
		return err
	}
	t.sender = &sender{program: sending, control: t.control, batch: t.spec.Batch, cpu: t.spec.CPU,
		polite: t.spec.Polite}
	for i, d := range t.clients {
		if err := t.loadPort(spec, programClient, d, i, i); err != nil {
			return err
		}
		// The map takes indexes of the namespace of the process that writes it.
		err := d.port.in(func() error { return t.maps[mapDevices].Put(uint32(i), uint32(d.index)) })
		if err != nil {
			return fmt.Errorf("%w %s: it cannot be sent by: %v", ErrPort, d.port, err)
		}
	}
	for i, d := range t.servers {
		if err := t.loadPort(spec, programServer, d, i, MaxPorts+i); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tester) loadPort(spec *ebpf.CollectionSpec, name string, d *device, index, row int) error {
	program, err := t.loadOne(spec, name, bpfWirePort{
		Mac: word(d.mac), Address: nativeIPv4(d.port.Address), Index: uint32(index), Row: uint32(row),
	})
	if err != nil {
		return err
	}
	return d.attach(program)
}

// loadOne loads one of the programs, for one port.
func (t *Tester) loadOne(spec *ebpf.CollectionSpec, name string, port bpfWirePort) (*ebpf.Program, error) {
	spec = spec.Copy()
	for other := range spec.Programs {
		if other != name {
			delete(spec.Programs, other)
		}
	}
	if err := errors.Join(spec.Variables["settings"].Set(t.settings()), spec.Variables["port"].Set(port)); err != nil {
		return nil, fmt.Errorf("setting up %s: %w", name, err)
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: t.maps})
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", name, err)
	}
	t.collections = append(t.collections, c)
	if len(t.maps) == 0 {
		for _, shared := range []string{mapConnections, mapControl, mapProgress, mapShared, mapCounts, mapLatencies,
			mapDevices, mapUnknownPeers} {
			t.maps[shared] = c.Maps[shared]
		}
	}
	return c.Programs[name], nil
}

// mapAll maps the memory that this process shares with the programs.
func (t *Tester) mapAll() error {
	for _, name := range []string{mapControl, mapProgress, mapShared} {
		m, err := mapMemory(t.maps[name])
		if err != nil {
			return err
		}
		t.memories = append(t.memories, m)
	}
	t.control = first[bpfWireControl](t.memories[0])
	t.progress = first[bpfWireProgress](t.memories[1])
	t.shared = first[bpfWireShared](t.memories[2])
	return nil
}

// settings returns the arrangement in the form of the programs.
func (t *Tester) settings() bpfWireSettings {
	s := bpfWireSettings{
		Seed: t.spec.Seed, Vip: nativeIPv4(t.spec.Target.Addr()), VipPort: portInPacket(t.spec.Target.Port()),
		OwnPort: portInPacket(t.spec.ServerPort), Clients: uint32(len(t.clients)), Servers: uint32(len(t.servers)),
		Nexts: uint32(len(t.spec.Next)), Addresses: uint32(t.spec.addresses()),
		FirstPort: uint32(t.spec.SourcePorts[0]),
		Ports:     uint32(t.spec.SourcePorts[1]-t.spec.SourcePorts[0]) + 1, Capacity: uint32(t.spec.Connections),
		Direct: flag(t.spec.Reply == ReplyDirect), Weak: uint32(mapmem.Weak()),
	}
	for i, d := range t.clients {
		s.Client[i].Mac = word(d.mac)
		s.Client[i].First, _ = d.port.usable()
	}
	for i, mac := range t.spec.Next {
		s.Next[i] = word(mac)
	}
	for point, vip := range t.spec.DSCP {
		s.Dscp[point] = nativeIPv4(vip)
	}
	return s
}

// Close detaches the programs from the ports.
func (t *Tester) Close() error {
	var errs []error
	for _, d := range append(t.clients[:len(t.clients):len(t.clients)], t.servers...) {
		if err := d.detach(); err != nil {
			errs = append(errs, fmt.Errorf("taking the program off %s: %w", d.port, err))
		}
	}
	for _, m := range t.memories {
		m.unmap()
	}
	for _, c := range t.collections {
		c.Close()
	}
	t.memories, t.collections = nil, nil
	return errors.Join(errs...)
}
