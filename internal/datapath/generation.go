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
	collection *ebpf.Collection
	program    *ebpf.Program
	places     places
	tables     tables
}

// close frees the program and the maps. What is attached goes on working: the
// kernel holds what it uses.
func (g *generation) close() {
	if g != nil {
		g.collection.Close()
	}
}

// loadGeneration builds a generation aside. Nothing that is in use changes.
// Tables are taken from last, the generation before, where they are the same.
func loadGeneration(program programKind, mac net.HardwareAddr, state State, at places,
	last *generation, tableSize uint32, shared *shared) (*generation, error) {
	spec, err := program.load()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	built := tables{}
	if last != nil {
		built = last.tables
	}
	if built, err = built.with(state, tableSize); err != nil {
		return nil, err
	}
	contents := fill(state, at, mac, built)
	if err := contents.put(spec, mac); err != nil {
		return nil, err
	}
	shared.put(spec)
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared.maps()})
	if err != nil {
		return nil, loadError(err)
	}
	return &generation{collection: collection, program: collection.Programs[program.name], places: at, tables: built}, nil
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

// contents is what goes into the maps of a generation.
type contents struct {
	services4 map[xdpServiceKey4]xdpService
	services6 map[xdpServiceKey6]xdpService
	table     []uint16
	members   []xdpBackend
	// backends[i] is the backend with index i; one without an owner is down.
	backends []xdpBackend
}

// fill lays a state out as the data plane reads it.
func fill(state State, at places, mac net.HardwareAddr, built tables) *contents {
	c := &contents{
		services4: map[xdpServiceKey4]xdpService{},
		services6: map[xdpServiceKey6]xdpService{},
		backends:  make([]xdpBackend, len(at.generations)),
	}
	for _, service := range state.Services {
		slots := built[service.Key()].slots
		value := xdpService{
			TableBase:  uint32(len(c.table)),
			TableSize:  uint32(len(slots)),
			MemberBase: uint32(len(c.members)),
			Id:         at.services[service.Key()],
			Scheduler:  schedulerNumber(service.Scheduler),
		}
		c.table = append(c.table, slots...)
		c.addBackends(service, at, mac)
		c.addService(service.VIP, service.Port, uint8(service.Protocol), value)
		// The VIP by itself, for packets without ports.
		c.addService(service.VIP, 0, uint8(xdpAgreementPROTOCOL_ANY), xdpService{})
	}
	return c
}

func (c *contents) addService(vip netip.Addr, port uint16, protocol uint8, value xdpService) {
	if vip.Is4() {
		c.services4[xdpServiceKey4{Address: addressWords(vip)[0], Port: networkOrder(port), Protocol: protocol}] = value
		return
	}
	c.services6[xdpServiceKey6{Address: addressWords(vip), Port: networkOrder(port), Protocol: protocol}] = value
}

func (c *contents) addBackends(service Service, at places, mac net.HardwareAddr) {
	for i, backend := range service.Backends {
		place := at.backends[service.BackendKey(backend)]
		value := xdpBackend{Index: place.index, Generation: place.generation}
		if service.up(i) {
			value.Up = 1
			value.Destination = [macLength]uint8(service.Paths[i].MAC)
			value.Source = [macLength]uint8(service.Paths[i].Source)
		}
		c.backends[place.index] = value
		if service.member(i) {
			c.members = append(c.members, value)
		}
	}
}

// put lays the vectors out in the one value of the generation's map, and gives
// the program the constants that say where they are.
func (c *contents) put(spec *ebpf.CollectionSpec, mac net.HardwareAddr) error {
	slots4, err := openAddress(c.services4, hashService4, func(k xdpServiceKey4, v xdpService) xdpServiceSlot4 {
		return xdpServiceSlot4{Key: k, Service: v}
	})
	if err != nil {
		return err
	}
	slots6, err := openAddress(c.services6, hashService6, func(k xdpServiceKey6, v xdpService) xdpServiceSlot6 {
		return xdpServiceSlot6{Key: k, Service: v}
	})
	if err != nil {
		return err
	}
	constants := xdpSettings{
		Mac:            [macLength]uint8(mac),
		Services4Mask:  uint32(len(slots4)) - 1,
		Services6Mask:  uint32(len(slots6)) - 1,
		Services4Shift: hashShift(uint32(len(slots4))),
		Services6Shift: hashShift(uint32(len(slots6))),
		TableSlots:     uint32(len(c.table)),
		MembersCount:   uint32(len(c.members)),
		BackendsCount:  uint32(len(c.backends)),
	}
	var blob bytes.Buffer
	for _, vector := range []struct {
		at     *uint32
		values any
	}{
		{new(uint32), slots4}, // at 0
		{&constants.Services6, slots6},
		{&constants.Table, c.table},
		{&constants.Members, c.members},
		{&constants.Backends, c.backends},
	} {
		*vector.at = uint32(blob.Len())
		if err := binary.Write(&blob, binary.NativeEndian, vector.values); err != nil {
			return fmt.Errorf("laying out the configuration: %v", err)
		}
		// Each vector begins on a cache line of its own.
		blob.Write(make([]byte, -blob.Len()&(cacheLine-1)))
		if blob.Len() > maxGeneration {
			return fmt.Errorf("the configuration needs more than the %d bytes that the kernel's verifier allows: use fewer services or a smaller table_size",
				maxGeneration)
		}
	}
	spec.Maps[xdpMapGeneration].ValueSize = uint32(blob.Len())
	spec.Maps[xdpMapGeneration].Contents = []ebpf.MapKV{{Key: uint32(0), Value: blob.Bytes()}}
	if err := spec.Variables[xdpVarLoaded].Set(constants); err != nil {
		return fmt.Errorf("setting the program's constants: %v", err)
	}
	return nil
}

// cacheLine is the size of a cache line in bytes, on all that we run on.
const cacheLine = 64

// maxGeneration is the largest offset in bytes that the verifier lets a
// program add to a pointer (BPF_MAX_VAR_OFF of Linux).
const maxGeneration = 1 << 29

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
