// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/maglev"
)

// Generation is a loaded program with the maps of one configuration. It
// forwards nothing until it is attached.
type Generation struct {
	collection *ebpf.Collection
	program    *ebpf.Program
	places     places
}

// Program returns the balancer's program, for tests and measurements that run
// it without an interface.
func (g *Generation) Program() *ebpf.Program { return g.program }

// close frees the program and the maps. What is attached goes on working: the
// kernel holds what it uses.
func (g *Generation) close() {
	if g != nil {
		g.collection.Close()
	}
}

// loadGeneration builds a generation aside. Nothing that is in use changes.
func loadGeneration(program programKind, mac net.HardwareAddr, state State, at places,
	tableSize uint32, shared *shared) (*Generation, error) {
	spec, err := program.load()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	contents, err := fill(state, at, tableSize)
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[xdpVarLoaded].Set(xdpSettings{Mac: [macLength]uint8(mac)}); err != nil {
		return nil, fmt.Errorf("setting the program's constants: %v", err)
	}
	contents.put(spec)
	shared.put(spec)
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared.maps()})
	if err != nil {
		return nil, loadError(err)
	}
	return &Generation{collection: collection, program: collection.Programs[program.name], places: at}, nil
}

// loadError names the usual reasons why the kernel refuses a program.
func loadError(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w (%v): run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON", ErrNoRights, err)
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("%w: %v: see the README for the oldest kernel that was tried", ErrUnsupported, err)
	}
	return fmt.Errorf("loading the eBPF program: %v", err)
}

// contents is what goes into the maps of a generation.
type contents struct {
	services4, services6, table, backends []ebpf.MapKV
}

// fill lays a state out as the data plane reads it.
func fill(state State, at places, tableSize uint32) (*contents, error) {
	c := &contents{}
	vips := map[netip.Addr]bool{}
	for _, service := range state.Services {
		slots, err := slotsOf(service, at, tableSize)
		if err != nil {
			return nil, fmt.Errorf("service %s: %v", service.Name, err)
		}
		value := xdpService{
			TableBase: uint32(len(c.table)),
			TableSize: uint32(len(slots)),
			Id:        at.services[service.Key()],
			Scheduler: schedulerNumber(service.Scheduler),
		}
		for _, slot := range slots {
			c.table = append(c.table, ebpf.MapKV{Key: uint32(len(c.table)), Value: slot})
		}
		c.addService(service.VIP, service.Port, uint8(service.Protocol), value)
		vips[service.VIP] = true
		c.addBackends(service, at)
	}
	for vip := range vips {
		c.addService(vip, 0, 0, xdpService{})
	}
	return c, nil
}

func (c *contents) addService(vip netip.Addr, port uint16, protocol uint8, value xdpService) {
	if vip.Is4() {
		c.services4 = append(c.services4, ebpf.MapKV{Value: value, Key: xdpServiceKey4{
			Address: addressWords(vip)[0], Port: networkOrder(port), Protocol: protocol}})
		return
	}
	c.services6 = append(c.services6, ebpf.MapKV{Value: value, Key: xdpServiceKey6{
		Address: addressWords(vip), Port: networkOrder(port), Protocol: protocol}})
}

func (c *contents) addBackends(service Service, at places) {
	for i, backend := range service.Backends {
		place := at.backends[service.BackendKey(backend)]
		value := xdpBackend{Generation: place.generation}
		if service.up(i) {
			value.Up = 1
			value.Mac = [macLength]uint8(service.MACs[i])
		}
		c.backends = append(c.backends, ebpf.MapKV{Key: place.index, Value: value})
	}
}

// put sizes the maps of a generation and gives them their contents.
func (c *contents) put(spec *ebpf.CollectionSpec) {
	last := uint32(0)
	for _, kv := range c.backends {
		last = max(last, kv.Key.(uint32))
	}
	for name, part := range map[string]struct {
		entries uint32
		kvs     []ebpf.MapKV
	}{
		// Twice as many buckets as services, or chains would cost each packet.
		xdpMapServices4: {powerOfTwo(2*len(c.services4) + 1), c.services4},
		xdpMapServices6: {powerOfTwo(2*len(c.services6) + 1), c.services6},
		xdpMapTable:     {uint32(max(len(c.table), 1)), c.table},
		xdpMapBackends:  {last + 1, c.backends},
	} {
		spec.Maps[name].MaxEntries = part.entries
		spec.Maps[name].Contents = part.kvs
	}
}

// slotsOf builds the service's table over the backends that take new flows:
// those with a weight whose MAC is known.
func slotsOf(service Service, at places, tableSize uint32) ([]uint32, error) {
	var names []string
	var weights, indices []uint32
	for i, backend := range service.Backends {
		if !service.up(i) || backend.Weight == 0 {
			continue
		}
		names = append(names, netip.AddrPortFrom(backend.Address, backend.Port).String())
		weights = append(weights, uint32(backend.Weight))
		indices = append(indices, at.backends[service.BackendKey(backend)].index)
	}
	if len(indices) == 0 || service.Scheduler == lb.RoundRobin {
		return indices, nil
	}
	slots, err := maglev.Build(weights, names, tableSize)
	if err != nil {
		return nil, err
	}
	for slot, backend := range slots {
		slots[slot] = indices[backend]
	}
	return slots, nil
}

func schedulerNumber(s lb.Scheduler) uint32 {
	if s == lb.RoundRobin {
		return uint32(xdpSchedulerSCHEDULER_ROUND_ROBIN)
	}
	return uint32(xdpSchedulerSCHEDULER_MAGLEV)
}

// addressWords returns an address as the four words of a packet, in network
// byte order; IPv4 fills the first.
func addressWords(a netip.Addr) (words [4]uint32) {
	for i, b := 0, a.AsSlice(); i < len(b)/4; i++ {
		words[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return words
}

// networkOrder returns v such that its bytes in memory are big-endian.
func networkOrder(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

func powerOfTwo(n int) uint32 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}
