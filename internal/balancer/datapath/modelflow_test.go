// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The model's entries of flows: their keys, places and states.

// flowName is the key of an entry: a flow of a service, or the clients of a prefix, which have port 0.
type flowName struct {
	client netip.Addr
	port   uint16
	// service is the number that the data plane has for it.
	service  uint32
	affinity bool
	// group: service is the number of a group's persistence.
	group bool
}

// flowState is the state of a flow: enum flow_state.
type flowState byte

const (
	stateFree flowState = iota
	stateOpening
	stateSeen
	stateFirst
	stateEstablished
	stateContested
	stateUDP
	stateClientFIN
	stateBackendFIN
	stateClosed
	stateRefused
	stateTimeWait
	stateAffinityNew
	stateAffinity
)

// live says that neither side has ended the flow: it counts for its backend.
func (s flowState) live() bool { return s >= stateOpening && s <= stateUDP }

// over says that a SYN of the same client begins another flow.
func (s flowState) over() bool {
	return s == stateClientFIN || s == stateBackendFIN || s == stateClosed || s == stateRefused || s == stateTimeWait
}

// after is the state that a packet of the client leads to.
func (s flowState) after(a clientPacket) flowState {
	if a.protocol == protoUDP {
		if s == stateFirst {
			return stateUDP
		}
		return s
	}
	unfinished := s == stateOpening || s == stateSeen || s == stateEstablished
	switch {
	case s == stateContested, s == stateRefused:
		return s
	case a.flags&flagRST != 0:
		return stateClosed
	case a.flags&flagFIN != 0 && unfinished:
		return stateClientFIN
	case a.flags&flagFIN != 0 && s == stateBackendFIN:
		return stateTimeWait
	case a.flags&(flagFIN|flagSYN) != 0:
		return s
	case s == stateOpening || s == stateSeen:
		return stateEstablished
	}
	return s
}

// afterReply is the state that a packet of the backend leads to.
func (s flowState) afterReply(flags byte) flowState {
	unfinished := s == stateOpening || s == stateSeen || s == stateEstablished
	switch {
	case s == stateContested:
		return s
	case s == stateOpening && flags&(flagRST|flagACK) != flagRST|flagACK:
		return s
	case s == stateRefused || flags&flagRST != 0 && s == stateOpening:
		return stateRefused
	case flags&flagRST != 0:
		return stateClosed
	case flags&flagFIN != 0 && unfinished:
		return stateBackendFIN
	case flags&flagFIN != 0 && s == stateClientFIN:
		return stateClosed
	}
	return s
}

// remembered is an entry of a table of flows.
type remembered struct {
	flowName
	backend lb.BackendKey
	// host is instead of a backend where a group remembers a client.
	host netip.Addr
	// life is the backend's at that time: it has another one after it was away.
	life  *modelLife
	state flowState
	// seen is in milliseconds of the model's clock.
	seen uint32
	// isn is the sequence number of the SYN that the backend got last, 0 where it got none
	// or the flow is one of full NAT.
	isn uint32
	// pool is the source that the packets of a flow get by full NAT. The data plane
	// chooses it, and the model learns it when the flow begins.
	pool netip.AddrPort
	// at is its table; home is the bucket that it belongs to, and bucket the one that it is in.
	at           *modelFlows
	home, bucket uint32
}

// modelLife is a backend for as long as it is configured.
type modelLife struct{ load *modelLoad }

// modelLoad is the load of an index, which backends have one after the other.
type modelLoad struct {
	active uint32
	full   bool
	// penalty is the weight of refused connections, and quiet the seconds since the last.
	penalty, quiet uint64
}

// modelFlows is one of the two tables of flows: buckets of few places.
type modelFlows struct {
	buckets []modelBucket
	known   map[flowName]*remembered
	// touched are the buckets that have changed since they were last compared.
	touched map[uint32]bool
}

type modelBucket struct {
	places [8]*remembered
	// elsewhere is how many flows of this home are in their second bucket, in the low half,
	// and a bit for each of their tags, until there are none.
	elsewhere uint64
}

func (b *modelBucket) used() (n int) {
	for _, e := range b.places {
		if e != nil {
			n++
		}
	}
	return n
}

// crowded is the number of flows from which on a bucket's second one is considered.
const crowded = 6

// newModelFlows has room for some more flows than limit.
func newModelFlows(limit uint32) *modelFlows {
	return &modelFlows{buckets: make([]modelBucket, (limit+4)/5), known: map[flowName]*remembered{},
		touched: map[uint32]bool{}}
}

// insert gives an entry a place in one of its two buckets, if there is one.
func (t *modelFlows) insert(e *remembered, secret uint64) bool {
	hash := e.hash(secret)
	home := t.home(hash)
	second := scale(uint32(hash>>16)*0x9e3779b1, len(t.buckets))
	in := home
	switch used := t.buckets[home].used(); {
	case used < crowded:
	case second != home && t.buckets[second].used() < used:
		in = second
		t.buckets[home].elsewhere = (t.buckets[home].elsewhere + 1) | 1<<(32+uint64(e.tag(secret)&31))
		t.touched[home] = true
	case used == len(t.buckets[home].places):
		return false
	}
	b := &t.buckets[in]
	place := int(hash >> 24 & 7)
	if b.places[place] != nil {
		place = slices.Index(b.places[:], nil)
	}
	b.places[place] = e
	e.at, e.home, e.bucket = t, home, in
	t.known[e.flowName] = e
	t.touched[in] = true
	return true
}

// home is the bucket that an entry belongs to.
func (t *modelFlows) home(hash uint64) uint32 { return scale(uint32(hash>>32), len(t.buckets)) }

// remove frees an entry's place.
func (t *modelFlows) remove(e *remembered) {
	b := &t.buckets[e.bucket]
	b.places[slices.Index(b.places[:], e)] = nil
	t.touched[e.bucket] = true
	if e.bucket != e.home {
		if t.buckets[e.home].elsewhere--; uint32(t.buckets[e.home].elsewhere) == 0 {
			t.buckets[e.home].elsewhere = 0
		}
		t.touched[e.home] = true
	}
	delete(t.known, e.flowName)
	e.at = nil
}

// scale maps a hash onto 0..size-1.
func scale(hash uint32, size int) uint32 { return uint32(uint64(hash) * uint64(size) >> 32) }

// mix is the one of docs/architecture.md.
func mix(h uint64) uint64 {
	h *= 0xff51afd7ed558ccd
	h ^= h >> 32
	return h * 0xc4ceb9fe1a85ec53
}

const multiplier, multiplier2, multiplier3 = 0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9

// hash places an entry. Words are taken as they lie in the packet.
func (n *flowName) hash(secret uint64) uint64 {
	var a [16]byte
	copy(a[:], n.client.AsSlice())
	service := uint64(n.service)
	if n.affinity {
		service |= 1 << 31
	}
	if n.group {
		service |= 1 << 30
	}
	port := uint64(bits.ReverseBytes16(n.port))
	return mix(secret + binary.LittleEndian.Uint64(a[:])*multiplier + binary.LittleEndian.Uint64(a[8:])*multiplier2 +
		(port<<32|service)*multiplier3)
}

// tag has 16 bits of an entry's hash, by which a bucket's places are compared first; 0 is a free place, and 1 one that
// is being written.
func (n *flowName) tag(secret uint64) uint16 {
	tag := uint16(n.hash(secret))
	if tag < 2 {
		tag += 2
	}
	return tag
}

// flowHash is the hash that docs/architecture.md gives, over the client's address and
// port as they are in the packet.
func flowHash(client netip.AddrPort) uint32 {
	port := uint64(bits.ReverseBytes16(client.Port())) << 32
	a := client.Addr().AsSlice()
	if client.Addr().Is4() {
		return uint32(mix(port|uint64(binary.LittleEndian.Uint32(a))) >> 32)
	}
	return uint32(mix(port+binary.LittleEndian.Uint64(a)*multiplier+
		binary.LittleEndian.Uint64(a[8:])*multiplier2) >> 32)
}

// lookUp finds an entry, in whichever table.
func (m *model) lookUp(name flowName) *remembered {
	if e := m.flows.known[name]; e != nil {
		return e
	}
	return m.newcomers.known[name]
}

// valid says that the entry's backend has been there ever since.
func (m *model) valid(e *remembered) bool { return e.group || m.lives[e.backend] == e.life }

// remember makes an entry for a new flow; false means that there is no room.
func (m *model) remember(name flowName, backend lb.BackendKey, state flowState, isn uint32) bool {
	e := &remembered{flowName: name, backend: backend, life: m.lives[backend], state: state, seen: m.clock, isn: isn}
	if name.group {
		e.host, e.backend, e.life = backend.Address, lb.BackendKey{}, nil
	}
	if !m.newcomers.insert(e, m.secret) {
		m.met["no room for a newcomer"]++
		return false
	}
	m.count(e, 1)
	return true
}

// count adds an entry to the counts of its service and its backend, or subtracts it, if it is a flow that neither side
// has ended and of a service that counts them.
func (m *model) count(e *remembered, n int) {
	at := m.numbered[e.service]
	if at == nil || !at.tracked || e.affinity || !e.state.live() {
		return
	}
	at.active += uint32(n)
	e.life.load.active += uint32(n)
}

// free forgets an entry.
func (m *model) free(e *remembered) {
	m.stale = true
	m.count(e, -1)
	e.at.remove(e)
	if key := e.returnKey(); m.returns[key] == e {
		delete(m.returns, key)
	}
}

// setState changes an entry's state.
func (m *model) setState(e *remembered, state flowState) {
	if state == e.state {
		return
	}
	// A reply keeps it from being forgotten now.
	m.stale = m.stale || e.state == stateOpening
	m.count(e, -1)
	e.state = state
	m.count(e, 1)
	e.at.touched[e.bucket] = true
}

// noteEvery is how old a time is before it is written again, in milliseconds.
const noteEvery = 1000

// refreshBy notes that an entry was used by a packet: at once, where that begins or ends a connection.
func (m *model) refreshBy(e *remembered, flags byte) {
	if flags&(flagSYN|flagFIN|flagRST) != 0 && m.clock != e.seen {
		e.seen = m.clock
		e.at.touched[e.bucket] = true
	}
	m.refresh(e)
}

// refresh notes that an entry was used.
func (m *model) refresh(e *remembered) {
	if m.clock-e.seen >= noteEvery {
		e.seen = m.clock
		e.at.touched[e.bucket] = true
	}
}

// note keeps the effect of a client's packet on a known flow, which contests another or none.
func (m *model) note(s *lb.RoutedService, e, contested *remembered, a clientPacket) {
	m.refreshBy(e, a.flags)
	before := e.state
	if before == stateContested && a.flags&flagRST != 0 {
		m.met["contested: reset"]++
		m.free(e)
		return
	}
	if before == stateOpening && s.Mode == lb.FullNAT && a.flags&flagRST != 0 {
		m.met["reset before its proof"]++
		return
	}
	m.setState(e, before.after(a))
	if before == stateOpening && e.state == stateEstablished {
		m.forgive(e)
	}
	// A flow of full NAT that was reopened may be among the proven already, and proves
	// nothing again.
	if e.state == before || e.state != stateEstablished && e.state != stateUDP || e.at == m.flows {
		return
	}
	if contested != nil {
		m.met["contested: replaced"]++
		m.free(contested)
	}
	if affinity := m.newcomers.known[m.affinityOf(s, a)]; s.Persistence.On() && m.sharesNow(s) && affinity != nil &&
		affinity.state == stateAffinityNew {
		affinity.state = stateAffinity
		affinity.at.touched[affinity.bucket] = true
		m.prove(affinity)
	}
	m.prove(e)
}

// prove moves an entry to the flows that are proven, if there is room.
func (m *model) prove(e *remembered) {
	moved := *e
	if e.at == m.flows {
		return
	}
	if !m.flows.insert(&moved, m.secret) {
		m.met["no room for one that is proven"]++
		return
	}
	m.met["proven"]++
	m.newcomers.remove(e)
	if m.returns[e.returnKey()] == e {
		m.returns[e.returnKey()] = &moved
	}
}

// noteReply keeps the effect of a backend's packet on a flow, and reports whether it ends one.
func (m *model) noteReply(p *packet, backend lb.BackendKey) (ends bool) {
	s, _ := m.find(backend)
	if p.protocol != protoTCP || p.flags&(flagFIN|flagRST) == 0 || s == nil || s.Mode != lb.NAT || !isTracked(s) {
		return false
	}
	name := flowName{client: p.destination, port: p.dport, service: m.standings[s.Key()].id}
	e := m.lookUp(name)
	if e != nil && e.state == stateContested && !(m.valid(e) && e.backend == backend) {
		e = m.newcomers.known[name]
	}
	switch {
	case e == nil || !m.valid(e) || e.backend != backend:
		return false
	case e.state == stateContested && p.flags&flagRST != 0:
		m.met["contested: reset by the backend"]++
		m.free(e)
	default:
		m.met["told by a reply"]++
		m.refreshBy(e, flagFIN)
		m.noteFlags(e, p.flags)
	}
	return true
}

// noteFlags keeps the state of a flow after a packet of its backend, which may end or refuse it.
func (m *model) noteFlags(e *remembered, flags byte) {
	before := e.state
	m.setState(e, before.afterReply(flags))
	if s, i := m.find(e.backend); e.state == stateRefused && before != stateRefused && s != nil {
		m.met["refused"]++
		m.penalise(s, i)
	}
}

// flowOf names the flow of a packet.
func (m *model) flowOf(s *lb.RoutedService, a clientPacket) flowName {
	return flowName{client: a.client.Addr(), port: a.client.Port(), service: m.standings[s.Key()].id}
}

// sharesNow reports whether a service can use its group's affinities: without a table, it does not know its group.
func (m *model) sharesNow(s *lb.RoutedService) bool {
	return s.Persistence.Group == "" || len(m.standings[s.Key()].owners) > 0
}

// affinityOf names the affinity of a packet's client.
func (m *model) affinityOf(s *lb.RoutedService, a clientPacket) flowName {
	length := int(s.Persistence.Prefix)
	if length == 0 {
		length = a.client.Addr().BitLen()
	}
	prefix, _ := a.client.Addr().Prefix(length)
	name := flowName{client: prefix.Addr(), service: m.standings[s.Key()].id, affinity: true}
	if s.Persistence.Group != "" {
		name.service, name.group = m.groupID(s.Persistence.Group), true
	}
	return name
}

// end is the client's end of a flow.
func (n *flowName) end() netip.AddrPort { return netip.AddrPortFrom(n.client, n.port) }

func (e *remembered) returnKey() returnKey {
	return returnKey{netip.AddrPortFrom(e.backend.Address, e.backend.Port), e.pool, byte(e.backend.Service.Protocol)}
}

// takePort records the pool's address and port of a new flow, or returns the fault in them. Where the program had none,
// which may be, the flow is undone.
func (m *model) takePort(c *choice, e *remembered, seen seen) (outcome string) {
	free, elders := m.tryPorts(e)
	if slices.Contains(m.mayExhaust, seen.dropped) {
		if free.IsValid() || len(elders) > 0 {
			c.complaint = fmt.Sprintf("%v is free, or to be taken over from %v", free, elders)
		}
		m.free(e)
		return noPort
	}
	if seen.pool == nil {
		return ""
	}
	c.pool = seen.pool(e)
	e.pool = c.pool
	if !m.inPool(e.pool.Addr(), e.pool.Port()) {
		c.complaint = e.pool.String() + " is not in the pool"
	}
	if other := m.flowBehind(e.returnKey()); slices.Contains(elders, other) {
		m.met["taken over"]++
		m.free(other)
	} else if other != nil {
		c.complaint = e.pool.String() + " belongs to the flow of " + other.end().String() + " to the same backend"
	} else if e.pool != free {
		c.complaint = fmt.Sprintf("%v was taken, though %v is free", e.pool, free)
	}
	m.returns[e.returnKey()] = e
	return ""
}

// poolOf are the balancer's own addresses of the pool that are of another's family.
func (m *model) poolOf(other netip.Addr) []netip.Addr {
	return ofFamily(m.state.Pool.Addresses, other)
}

func ofFamily(all []netip.Addr, other netip.Addr) (some []netip.Addr) {
	for _, a := range all {
		if a.Is4() == other.Is4() {
			some = append(some, a)
		}
	}
	return some
}

// tryPorts returns the port of the pool that a new flow of full NAT gets: the first free one of the 32 that it tries in
// turn; and the flows that it may take a port from instead: of those before it stops looking, the one that has been
// silent for longest. It may stop after four, or after eight if none of them has been silent at all, if the program's
// last flow found no port, which the model does not know.
func (m *model) tryPorts(e *remembered) (free netip.AddrPort, elders []*remembered) {
	pool := m.poolOf(e.client)
	if len(pool) == 0 {
		return free, nil
	}
	var elder *remembered
	tried := *e
	hash, ports := flowHash(e.end()), int(m.state.Pool.LastPort-m.state.Pool.FirstPort)+1
	for i := range 32 {
		if i >= 4 && elder != nil && (i >= 8 || int32(m.clock-elder.seen) > 0) && elders == nil {
			elders = []*remembered{elder}
		}
		tried.pool = netip.AddrPortFrom(pool[scale(hash*0x85ebca6b, len(pool))], m.state.Pool.FirstPort+
			uint16(scale(hash, ports)))
		holder := m.flowBehind(tried.returnKey())
		if holder == nil {
			return tried.pool, elders
		}
		if m.canReusePort(holder) && (elder == nil || holder.evictBefore(elder)) {
			elder = holder
		}
		hash = hash*0x9e3779b1 + 0x7f4a7c15
	}
	if elder != nil {
		elders = append(elders, elder)
	}
	return free, elders
}

// canEvict reports whether a flow may be forgotten for another one that needs its place.
func (m *model) canEvict(e *remembered) bool {
	return e.at == m.newcomers && (e.state == stateOpening || e.state == stateFirst || e.state.closed())
}

// canReusePort reports whether a flow may be forgotten for another one that needs its port: those that neither end uses
// any more may, though they are proven.
func (m *model) canReusePort(e *remembered) bool { return m.canEvict(e) || e.state.closed() }

// closed says that neither end uses the flow any more.
func (s flowState) closed() bool {
	return s == stateClosed || s == stateRefused || s == stateTimeWait
}

// evictBefore says that a flow is to give up its port rather than another: if it is over
// and the backend holds nothing of it; then if that is in TIME-WAIT; then the longest silent.
func (e *remembered) evictBefore(other *remembered) bool {
	cost := func(s flowState) int {
		switch s {
		case stateClosed, stateRefused:
			return 0
		case stateTimeWait:
			return 1
		}
		return 2
	}
	if a, b := cost(e.state), cost(other.state); a != b {
		return a < b
	}
	return int32(e.seen-other.seen) < 0
}

// makeRoom forgets, of the flows in the home of a new one, the one that has been silent for
// longest.
func (m *model) makeRoom(name flowName) bool {
	var eldest *remembered
	for _, e := range m.newcomers.buckets[m.newcomers.home(name.hash(m.secret))].places {
		if e != nil && m.canEvict(e) && (eldest == nil || int32(e.seen-eldest.seen) < 0) {
			eldest = e
		}
	}
	if eldest == nil {
		return false
	}
	m.met["evicted"]++
	m.free(eldest)
	return true
}

// setAffinity remembers where a client's next flow goes.
func (m *model) setAffinity(name flowName, backend lb.BackendKey) {
	if e := m.lookUp(name); e != nil {
		if name.group && e.host == backend.Address || !name.group && e.backend == backend && m.valid(e) {
			m.refresh(e)
			return
		}
		m.met["affinity replaced"]++
		m.free(e)
	}
	m.remember(name, backend, stateAffinityNew, 0)
}

// recount corrects all counts where services begin to track their flows, or end it. Entries that have no place in the
// tables any more go first.
func (m *model) recount(services []*serviceState) {
	if len(services) == 0 {
		return
	}
	m.sweep()
	for _, load := range m.loads {
		load.active = 0
	}
	for _, at := range m.numbered {
		at.active = 0
	}
	for _, table := range []*modelFlows{m.flows, m.newcomers} {
		for _, e := range table.known {
			m.count(e, 1)
		}
	}
}

// sweep forgets entries that have been silent for too long, or are of a service or backend that has left.
func (m *model) sweep() {
	for _, table := range []*modelFlows{m.flows, m.newcomers} {
		for _, e := range slices.Collect(maps.Values(table.known)) {
			if !m.present(e) || !m.valid(e) || m.clock-e.seen >= m.timeout(e) {
				m.noteForgotten(e)
				m.free(e)
			}
		}
	}
}

// noteForgotten notes that a connection is forgotten which was silent for too long.
func (m *model) noteForgotten(e *remembered) {
	if (e.state == stateEstablished || e.state == stateContested) && m.present(e) && m.valid(e) {
		s, _ := m.find(e.backend)
		m.noteUnremembered(s)
	}
}

// present says that the entry's service is configured.
func (m *model) present(e *remembered) bool {
	if e.group {
		return m.memberOf(e.service) != nil
	}
	s, _ := m.find(e.backend)
	return s != nil && m.standings[s.Key()].id == e.service
}

// memberOf returns a service of a group, by the group's number; nil if there is none.
func (m *model) memberOf(group uint32) *lb.RoutedService {
	for i := range m.state.Services {
		s := &m.state.Services[i]
		if name := s.Persistence.Group; name != "" && m.groupID(name) == group {
			return s
		}
	}
	return nil
}

// timeout is how long an entry may be silent, in milliseconds.
func (m *model) timeout(e *remembered) uint32 {
	t := m.options.Timeouts
	if e.state == stateAffinity {
		s, _ := m.find(e.backend)
		if e.group {
			s = m.memberOf(e.service)
		}
		return uint32(s.Persistence.Timeout.Milliseconds())
	}
	return uint32(map[flowState]time.Duration{stateOpening: t.Opening, stateSeen: t.Opening,
		stateAffinityNew: t.Opening, stateFirst: t.First,
		stateEstablished: t.Established, stateContested: t.Established, stateUDP: t.UDP, stateClientFIN: t.Fin,
		stateBackendFIN: t.Fin, stateClosed: t.Closed, stateRefused: t.Closed,
		stateTimeWait: t.Closed}[e.state].Milliseconds())
}
