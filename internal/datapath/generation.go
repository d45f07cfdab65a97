// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/lb"
)

// generation is a loaded program with the maps of one configuration. It
// forwards nothing until it is attached.
type generation struct {
	collections []*ebpf.Collection
	// programs[i] is for ports[i]; all have the same maps.
	programs []*ebpf.Program
	// What it was made of.
	ports  []port
	state  State
	places places
	tables tables
	// words names things where somebody traces; nil until then.
	words *words
}

// port is an interface that a program is made for. Index 0 stands for
// whichever one packets come in on.
type port struct {
	name  string
	index int
	mac   net.HardwareAddr
}

// close frees the program and the maps. What is attached goes on working: the
// kernel holds what it uses.
func (g *generation) close() {
	if g == nil {
		return
	}
	for _, collection := range g.collections {
		collection.Close()
	}
}

// loadGeneration builds a generation aside. Nothing that is in use changes.
// Tables are taken from last, the generation before, where they are the same.
// With tracing, the program is the one that tells of packets.
func loadGeneration(program programKind, ports []port, state State, at places,
	last *generation, tableSize uint32, shared *shared, tracing *tracing) (*generation, error) {
	built := tables{}
	if last != nil {
		built = last.tables
	}
	built, err := built.with(state, tableSize)
	if err != nil {
		return nil, err
	}
	blob, constants, err := fill(state, at, built).layout()
	if err != nil {
		return nil, err
	}
	constants.TooBigRate = shared.tooBigRate
	for _, p := range ports {
		// A detached program has no interface, and may send to any.
		if p.index != 0 {
			constants.Interfaces[constants.InterfacesCount] = uint32(p.index)
			constants.InterfacesCount++
		}
	}
	made := &generation{ports: ports, state: state, places: at, tables: built}
	for _, p := range ports {
		constants.Mac, constants.Interface = [macLength]uint8(p.mac), uint32(p.index)
		if err := made.add(program, blob, constants, shared, tracing); err != nil {
			made.close()
			return nil, err
		}
	}
	return made, nil
}

// add loads the program for one more port. The first brings the map of the
// configuration, and the others take it from there.
func (g *generation) add(program programKind, blob []byte, constants xdpSettings, shared *shared, tracing *tracing) error {
	spec, err := tracing.load(program)
	if err != nil {
		return fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	spec.Maps[xdpMapGeneration].ValueSize = uint32(len(blob))
	replacements := shared.maps()
	if len(g.collections) > 0 {
		replacements[xdpMapGeneration] = g.collections[0].Maps[xdpMapGeneration]
	} else {
		spec.Maps[xdpMapGeneration].Contents = []ebpf.MapKV{{Key: uint32(0), Value: blob}}
	}
	if err := tracing.put(spec, &constants, replacements); err != nil {
		return err
	}
	if err := spec.Variables[xdpVarLoaded].Set(constants); err != nil {
		return fmt.Errorf("setting the program's constants: %v", err)
	}
	shared.put(spec)
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		return loadError(err)
	}
	g.collections = append(g.collections, collection)
	g.programs = append(g.programs, collection.Programs[program.name])
	return nil
}

// loadError names the usual reasons why the kernel refuses a program.
func loadError(err error) error {
	// The verifier's refusal comes with the same error number as a missing
	// right, and is our fault, not the user's.
	if refusal := (*ebpf.VerifierError)(nil); errors.As(err, &refusal) && len(refusal.Log) > 0 {
		return fmt.Errorf("%w: the verifier refused the program: %v", ErrUnsupported, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w (%v): run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON", ErrNoRights, err)
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("%w: %v: see the README for the oldest kernel that was tried", ErrUnsupported, err)
	}
	return fmt.Errorf("loading the eBPF program: %v", err)
}

// contents is what goes into the map of a generation.
type contents struct {
	services4  map[xdpServiceKey4]xdpService
	services6  map[xdpServiceKey6]xdpService
	endpoints4 map[xdpServiceKey4]xdpEndpoint
	endpoints6 map[xdpServiceKey6]xdpEndpoint
	table      []uint16
	members    []xdpBackend
	// backends[i] is the backend with index i; one without an owner is down.
	backends            []xdpBackend
	pool4, pool6        [][4]uint32
	modes               uint32
	firstPort, lastPort uint16
}

// fill lays a state out as the data plane reads it.
func fill(state State, at places, built tables) *contents {
	c := &contents{
		services4:  map[xdpServiceKey4]xdpService{},
		services6:  map[xdpServiceKey6]xdpService{},
		endpoints4: map[xdpServiceKey4]xdpEndpoint{},
		endpoints6: map[xdpServiceKey6]xdpEndpoint{},
		backends:   make([]xdpBackend, len(at.generations)),
	}
	for _, service := range state.Services {
		slots := built[service.Key()].slots
		value := xdpService{
			TableBase:  uint32(len(c.table)),
			TableSize:  uint32(len(slots)),
			MemberBase: uint32(len(c.members)),
			Id:         at.services[service.Key()],
			Scheduler:  schedulerNumber(service.Scheduler),
			Mode:       uint8(modeNumbers[service.Mode]),
			Mss:        service.MSS,
			Tos:        service.DSCP << 2,
			Kind:       uint8(xdpServiceKindKIND_SERVICE),
		}
		c.table = append(c.table, slots...)
		c.modes |= 1 << value.Mode
		c.addBackends(service, at)
		addAddressed(c.services4, c.services6, service.VIP, service.Port, uint8(service.Protocol), value)
		// The VIP by itself, for packets without ports.
		addAddressed(c.services4, c.services6, service.VIP, 0, uint8(xdpAgreementPROTOCOL_ANY),
			xdpService{Kind: uint8(xdpServiceKindKIND_VIP)})
	}
	c.addFormer(at)
	c.addPool(state.Pool)
	return c
}

// addAddressed puts a value under an address, port and protocol of either family.
func addAddressed[V any](to4 map[xdpServiceKey4]V, to6 map[xdpServiceKey6]V, address netip.Addr, port uint16, protocol uint8, value V) {
	if address.Is4() {
		to4[xdpServiceKey4{Address: addressWords(address)[0], Port: networkOrder(port), Protocol: protocol}] = value
		return
	}
	to6[xdpServiceKey6{Address: addressWords(address), Port: networkOrder(port), Protocol: protocol}] = value
}

func (c *contents) addBackends(service Service, at places) {
	for i, backend := range service.Backends {
		place := at.backends[service.BackendKey(backend)]
		value := xdpBackend{
			Index:      place.index,
			Generation: place.generation,
			Address:    addressWords(backend.Address),
			Port:       networkOrder(backend.Port),
		}
		if backend.Address.Is6() {
			value.Ipv6 = 1
		}
		if service.up(i) {
			service.Paths[i].put(&value)
		}
		c.backends[place.index] = value
		if service.member(i) {
			c.members = append(c.members, value)
		}
		if service.Mode == lb.NAT {
			c.addEndpoint(service, backend, place.index)
		}
	}
}

// put makes a backend reachable.
func (p Path) put(b *xdpBackend) {
	b.Up = 1
	b.Destination = [macLength]uint8(p.MAC)
	b.Source = [macLength]uint8(p.Source)
	b.Interface = uint32(p.Interface)
	b.Mtu = p.mtu()
	if p.Local.IsValid() {
		b.Local = addressWords(p.Local)
	}
}

// addEndpoint makes replies of a backend known.
func (c *contents) addEndpoint(service Service, backend lb.Backend, index uint32) {
	value := xdpEndpoint{
		Vip:     addressWords(service.VIP),
		Port:    networkOrder(service.Port),
		Mss:     service.MSS,
		Backend: index,
	}
	addAddressed(c.endpoints4, c.endpoints6, backend.Address, backend.Port, uint8(service.Protocol), value)
	addAddressed(c.endpoints4, c.endpoints6, backend.Address, 0, uint8(xdpAgreementPROTOCOL_ANY), xdpEndpoint{})
}

// addPool makes full NAT's addresses known, where a service has that mode.
func (c *contents) addPool(pool Pool) {
	if c.modes&(1<<xdpModeMODE_FULLNAT) == 0 {
		return
	}
	c.firstPort, c.lastPort = pool.FirstPort, pool.LastPort
	for _, address := range pool.Addresses {
		if address.Is4() {
			c.pool4 = append(c.pool4, addressWords(address))
		} else {
			c.pool6 = append(c.pool6, addressWords(address))
		}
		addAddressed(c.services4, c.services6, address, 0, uint8(xdpAgreementPROTOCOL_ANY),
			xdpService{Kind: uint8(xdpServiceKindKIND_POOL)})
	}
}

// layout puts the vectors into the one value of the generation's map, and says
// by constants where they are.
func (c *contents) layout() ([]byte, xdpSettings, error) {
	constants := xdpSettings{
		FirstPort:     c.firstPort,
		LastPort:      c.lastPort,
		Modes:         c.modes,
		TableSlots:    uint32(len(c.table)),
		MembersCount:  uint32(len(c.members)),
		BackendsCount: uint32(len(c.backends)),
		Pool4Count:    uint32(len(c.pool4)),
		Pool6Count:    uint32(len(c.pool6)),
	}
	slots4, err := openAddress(c.services4, hashService4, func(k xdpServiceKey4, v xdpService) xdpServiceSlot4 {
		return xdpServiceSlot4{Key: k, Service: v}
	})
	if err != nil {
		return nil, constants, err
	}
	slots6, err := openAddress(c.services6, hashService6, func(k xdpServiceKey6, v xdpService) xdpServiceSlot6 {
		return xdpServiceSlot6{Key: k, Service: v}
	})
	if err != nil {
		return nil, constants, err
	}
	endpoints4, err := openAddress(c.endpoints4, hashService4, func(k xdpServiceKey4, v xdpEndpoint) xdpEndpointSlot4 {
		return xdpEndpointSlot4{Key: k, Endpoint: v}
	})
	if err != nil {
		return nil, constants, err
	}
	endpoints6, err := openAddress(c.endpoints6, hashService6, func(k xdpServiceKey6, v xdpEndpoint) xdpEndpointSlot6 {
		return xdpEndpointSlot6{Key: k, Endpoint: v}
	})
	if err != nil {
		return nil, constants, err
	}
	constants.Services4 = vectorOf(len(slots4))
	constants.Services6 = vectorOf(len(slots6))
	constants.Endpoints4 = vectorOf(len(endpoints4))
	constants.Endpoints6 = vectorOf(len(endpoints6))
	var blob bytes.Buffer
	for _, vector := range []struct {
		at     *uint32
		values any
	}{
		{&constants.Services4.At, slots4},
		{&constants.Services6.At, slots6},
		{&constants.Table, c.table},
		{&constants.Members, c.members},
		{&constants.Backends, c.backends},
		{&constants.Endpoints4.At, endpoints4},
		{&constants.Endpoints6.At, endpoints6},
		{&constants.Pool4, c.pool4},
		{&constants.Pool6, c.pool6},
	} {
		*vector.at = uint32(blob.Len())
		if err := binary.Write(&blob, binary.NativeEndian, vector.values); err != nil {
			return nil, constants, fmt.Errorf("laying out the configuration: %v", err)
		}
		// Each vector begins on a cache line of its own.
		blob.Write(make([]byte, -blob.Len()&(cacheLine-1)))
		if blob.Len() > maxGeneration {
			return nil, constants, fmt.Errorf("the configuration needs more than the %d bytes that the kernel's verifier allows: use fewer services or a smaller table_size",
				maxGeneration)
		}
	}
	return blob.Bytes(), constants, nil
}

// vectorOf describes a hash table of that many slots.
func vectorOf(slots int) xdpVector {
	return xdpVector{Mask: uint32(slots) - 1, Shift: hashShift(uint32(slots))}
}

// cacheLine is the size of a cache line in bytes, on all that we run on.
const cacheLine = 64

// maxGeneration is the largest offset in bytes that the verifier lets a
// program add to a pointer (BPF_MAX_VAR_OFF of Linux).
const maxGeneration = 1 << 29

func schedulerNumber(s lb.Scheduler) uint8 {
	if s == lb.RoundRobin {
		return uint8(xdpSchedulerSCHEDULER_ROUND_ROBIN)
	}
	return uint8(xdpSchedulerSCHEDULER_MAGLEV)
}

var modeNumbers = map[lb.Mode]xdpMode{
	lb.L2DSR:   xdpModeMODE_L2DSR,
	lb.IPIP:    xdpModeMODE_IPIP,
	lb.GUE:     xdpModeMODE_GUE,
	lb.DSCP:    xdpModeMODE_DSCP,
	lb.NAT:     xdpModeMODE_NAT,
	lb.FullNAT: xdpModeMODE_FULLNAT,
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
