// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"net"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/lb"
)

// model is the oracle: what the data plane should do with a packet, written
// from the documentation and not from the C. It remembers flows and turns.
type model struct {
	mac    net.HardwareAddr
	state  State
	tables tables
	turns  map[lb.ServiceKey]uint64
	flows  map[modelFlow]*modelEntry
}

type modelFlow struct {
	client  netip.AddrPort
	service lb.ServiceKey
}

type modelEntry struct {
	backend lb.BackendKey
	closing bool
}

// verdict is what became of a packet.
type verdict struct {
	outcome string
	// frame is the packet afterwards.
	frame []byte
	// backend is set where the packet was forwarded; so is opens.
	backend lb.BackendKey
	opens   bool
	// ipLength is the length of the IP packet in bytes.
	ipLength uint64
}

func newModel(mac net.HardwareAddr, state State, tableSize uint32) (*model, error) {
	m := &model{mac: mac, turns: map[lb.ServiceKey]uint64{}, flows: map[modelFlow]*modelEntry{}}
	return m, m.apply(state, tableSize)
}

// apply changes the configuration; flows and turns stay.
func (m *model) apply(state State, tableSize uint32) error {
	built, err := tables{}.with(state, tableSize)
	if err != nil {
		return err
	}
	there := map[lb.BackendKey]bool{}
	m.state, m.tables = state, built
	for _, service := range state.Services {
		for _, backend := range service.Backends {
			there[service.BackendKey(backend)] = true
		}
	}
	// A backend that leaves takes its flows with it, and does not find them
	// again when it returns.
	maps.DeleteFunc(m.flows, func(_ modelFlow, e *modelEntry) bool { return !there[e.backend] })
	return nil
}

// understood is what the model reads from a packet.
type understood struct {
	source, destination netip.Addr
	sport, dport        uint16
	protocol            byte
	flags               byte
	fragment, unwalked  bool
	ipLength            int
}

// decide says how the packet ends.
func (m *model) decide(frame []byte) verdict {
	v := verdict{frame: slices.Clone(frame)}
	p, outcome := m.read(frame)
	if outcome != "" {
		v.outcome = outcome
		return v
	}
	service := m.serviceFor(p)
	switch {
	case (p.fragment || p.unwalked) && m.isVIP(p.destination):
		v.outcome = "dropped_extension_headers"
		if p.fragment {
			v.outcome = "dropped_fragment"
		}
		return v
	case p.fragment || p.unwalked || service == nil:
		v.outcome = "passed_no_service"
		return v
	case p.ipLength > len(frame)-14:
		v.outcome = "dropped_malformed"
		return v
	}
	i, opens := m.choose(service, p)
	switch {
	case i < 0:
		v.outcome = "dropped_no_backend"
	case !service.up(i):
		v.outcome = "dropped_backend_down"
	default:
		v.outcome, v.opens, v.ipLength = "forwarded", opens, uint64(p.ipLength)
		v.backend = service.BackendKey(service.Backends[i])
		copy(v.frame[6:12], m.mac)
		copy(v.frame[0:6], service.Paths[i].MAC)
	}
	return v
}

// read understands a frame, or names the outcome that needs no more.
func (m *model) read(frame []byte) (p understood, outcome string) {
	if !slices.Equal(frame[:6], m.mac) {
		return p, "passed_other_host"
	}
	switch binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
		return readIPv4(frame[14:])
	case 0x86dd:
		return readIPv6(frame[14:])
	}
	return p, "passed_not_ip"
}

const malformed = "dropped_malformed"

func readIPv4(b []byte) (p understood, outcome string) {
	if len(b) < 20 || b[0]>>4 != 4 || b[0]&15 < 5 {
		return p, malformed
	}
	header := int(b[0]&15) * 4
	p.ipLength = int(binary.BigEndian.Uint16(b[2:]))
	if p.ipLength < header {
		return p, malformed
	}
	p.source, p.destination = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	p.protocol = b[9]
	if binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
		p.fragment = true
		return p, ""
	}
	return p, p.readTransport(b, header)
}

func readIPv6(b []byte) (p understood, outcome string) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return p, malformed
	}
	p.ipLength = 40 + int(binary.BigEndian.Uint16(b[4:]))
	p.source, p.destination = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	p.protocol = b[6]
	at := 40
	for range 4 {
		switch p.protocol {
		case 0, 43, 60, 44: // hop-by-hop, routing, destination options, fragment
		default:
			return p, p.readTransport(b, at)
		}
		if len(b) < at+8 {
			return p, malformed
		}
		next, length := b[at], (int(b[at+1])+1)*8
		if p.protocol == 44 {
			length = 8
			p.fragment = binary.BigEndian.Uint16(b[at+2:])&0xfff9 != 0
		}
		p.protocol = next
		if p.fragment {
			return p, ""
		}
		at += length
	}
	p.unwalked = true
	return p, ""
}

func (p *understood) readTransport(b []byte, at int) (outcome string) {
	least := 0
	switch p.protocol {
	case byte(lb.TCP):
		least = 20
	case byte(lb.UDP):
		least = 8
	default:
		return ""
	}
	if len(b) < at+least || p.ipLength < at+least {
		return malformed
	}
	p.sport, p.dport = binary.BigEndian.Uint16(b[at:]), binary.BigEndian.Uint16(b[at+2:])
	if p.protocol == byte(lb.TCP) {
		p.flags = b[at+13]
		if b[at+12]>>4 < 5 {
			return malformed
		}
	}
	return ""
}

func (m *model) serviceFor(p understood) *Service {
	for i := range m.state.Services {
		s := &m.state.Services[i]
		if s.VIP == p.destination && s.Port == p.dport && byte(s.Protocol) == p.protocol {
			return s
		}
	}
	return nil
}

func (m *model) isVIP(a netip.Addr) bool {
	return slices.ContainsFunc(m.state.Services, func(s Service) bool { return s.VIP == a })
}

// choose returns the index of a backend in the service, -1 for none.
func (m *model) choose(s *Service, p understood) (backend int, opens bool) {
	table := m.tables[s.Key()].slots
	if len(table) == 0 {
		return -1, false
	}
	var members []int
	for i := range s.Backends {
		if s.member(i) {
			members = append(members, i)
		}
	}
	syn := p.flags&0x12 == 0x02
	byHash := members[table[uint64(flowHash(p))*uint64(len(table))>>32]]
	if s.Scheduler == lb.Maglev {
		return byHash, syn
	}
	key := modelFlow{netip.AddrPortFrom(p.source, p.sport), s.Key()}
	opening := syn || p.protocol == byte(lb.UDP)
	if known := m.flows[key]; known != nil && !(known.closing && opening) {
		for i, b := range s.Backends {
			if s.BackendKey(b) == known.backend {
				known.closing = known.closing || p.flags&0x05 != 0
				return i, false
			}
		}
	}
	if !opening {
		return byHash, syn
	}
	chosen := members[table[m.turns[s.Key()]%uint64(len(table))]]
	m.turns[s.Key()]++
	m.flows[key] = &modelEntry{backend: s.BackendKey(s.Backends[chosen])}
	return chosen, true
}

// flowHash is the hash that docs/architecture.md gives, over the client's address and
// port as they are in the packet.
func flowHash(p understood) uint32 {
	mix := func(h uint64) uint64 {
		h *= 0xff51afd7ed558ccd
		h ^= h >> 32
		return h * 0xc4ceb9fe1a85ec53
	}
	port := uint64(bits.ReverseBytes16(p.sport)) << 32
	a := p.source.AsSlice()
	if p.source.Is4() {
		return uint32(mix(port|uint64(binary.LittleEndian.Uint32(a))) >> 32)
	}
	return uint32(mix(port+binary.LittleEndian.Uint64(a)*0x9e3779b97f4a7c15+
		binary.LittleEndian.Uint64(a[8:])*0xc2b2ae3d27d4eb4f) >> 32)
}
