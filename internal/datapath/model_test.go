// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/lb"
)

// model is the oracle: what the data plane should do with a packet, written
// from the rules and not from the C. It remembers flows, turns and fragments.
type model struct {
	mac net.HardwareAddr
	// ingress is the index of the interface that packets come in on.
	ingress int
	// tags: a VLAN tag is in the frame. Before TC, the kernel takes it out and keeps
	// it aside; what a test run has in the frame is a second one then.
	tags bool
	// gso: the kernel will cut TCP packets into segments that fit.
	gso bool
	// mayExhaust lists the outcomes in which a new full-NAT flow may end
	// instead: only the program knows when its ports or its table are used up.
	mayExhaust []string

	state    State
	tables   tables
	services map[lb.ServiceKey]*Service
	vips     map[netip.Addr]bool
	// there are the backends of the state.
	there map[lb.BackendKey]bool
	// endpoints are those of the backends of NAT, and of those that have left. The
	// model has no clock: no test lasts until they are forgotten.
	endpoints map[endpoint]origin
	// hosts are the addresses of endpoints.
	hosts map[netip.Addr]bool

	turns        map[lb.ServiceKey]uint64
	flows        map[modelFlow]*modelEntry
	translations map[modelFlow]*translation
	returns      map[returnKey]*translation
	fragments    map[fragmentKey]treatment
}

// endpoint is an end of a flow.
type endpoint struct {
	netip.AddrPort
	protocol byte
}

// origin is what the source of an endpoint's packets becomes.
type origin struct {
	at  netip.AddrPort
	mss uint16
	// backend is zero where the endpoint is that of a backend that has left.
	backend lb.BackendKey
}

type modelFlow struct {
	client  netip.AddrPort
	service lb.ServiceKey
}

type modelEntry struct {
	backend lb.BackendKey
	closing bool
}

// translation is a flow of full NAT.
type translation struct {
	modelFlow
	backend lb.BackendKey
	// pool is the source that its packets get. The data plane chooses it, and the
	// model learns it when the flow begins.
	pool                       netip.AddrPort
	finClient, finBackend, rst bool
}

func (t *translation) closed() bool { return t.rst || t.finClient && t.finBackend }

// returnKey is what a backend's reply to a translated flow bears.
type returnKey struct {
	backend, pool netip.AddrPort
	protocol      byte
}

type fragmentKey struct {
	source, destination netip.Addr
	// protocol is 0 over IPv6, where the id is unique without.
	protocol byte
	id       uint32
}

// treatment is what all fragments of a datagram get.
type treatment struct {
	// pass: they are the kernel's. Otherwise back: they come from the backend.
	pass, back bool
	backend    lb.BackendKey
	// mode and dscp are those of the service at the time.
	mode lb.Mode
	dscp uint8
	hash uint32
	// vip is what a backend's address becomes, and from the endpoint it was for NAT.
	vip  netip.Addr
	from endpoint
	// client and pool are those of the flow, for full NAT.
	client, pool netip.Addr
	// gone: the backend has left since.
	gone bool
}

// verdict is what became of a packet.
type verdict struct {
	outcome string
	// rewritten is the packet afterwards; without meaning if it is dropped.
	rewritten
	// elsewhere: it leaves by another interface than it came in on.
	elsewhere bool
	// backend is set where the packet was forwarded or returned, unless its backend
	// has left; so is opens.
	backend lb.BackendKey
	opens   bool
	// ipLength is the length of the IP packet in bytes.
	ipLength uint64
	// complaint says what is wrong with the choice that the program made, where
	// it had one.
	complaint string
	treatment *treatment
}

// seen is what the program did with the packet. The model asks it only for the
// pool's address and port of a new flow.
type seen struct {
	// pool reads them from the program's own table: the flow's first packets may all
	// be too big to be sent.
	pool func(modelFlow) netip.AddrPort
	// dropped is the outcome that the program counted, if the caller knows.
	dropped string
}

func newModel(mac net.HardwareAddr, state State, tableSize uint32) (*model, error) {
	m := &model{mac: mac, ingress: loopback,
		turns: map[lb.ServiceKey]uint64{}, flows: map[modelFlow]*modelEntry{},
		translations: map[modelFlow]*translation{}, returns: map[returnKey]*translation{},
		fragments: map[fragmentKey]treatment{}}
	return m, m.apply(state, tableSize)
}

// apply changes the configuration; flows, turns and fragments stay.
func (m *model) apply(state State, tableSize uint32) error {
	built, err := tables{}.with(state, tableSize)
	if err != nil {
		return err
	}
	m.state, m.tables = state, built
	m.services, m.vips = map[lb.ServiceKey]*Service{}, map[netip.Addr]bool{}
	m.there = map[lb.BackendKey]bool{}
	before := m.endpoints
	m.endpoints, m.hosts = map[endpoint]origin{}, map[netip.Addr]bool{}
	for i := range state.Services {
		service := &state.Services[i]
		m.services[service.Key()], m.vips[service.VIP] = service, true
		for _, backend := range service.Backends {
			m.there[service.BackendKey(backend)] = true
			if service.Mode == lb.NAT {
				at := endpoint{netip.AddrPortFrom(backend.Address, backend.Port), byte(service.Protocol)}
				m.endpoints[at] = origin{service.at(), service.MSS, service.BackendKey(backend)}
			}
		}
	}
	m.keepFormer(before)
	for at := range m.endpoints {
		m.hosts[at.Addr()] = true
	}
	m.forget()
	return nil
}

// keepFormer keeps the endpoints that a state does not have any more. Their packets
// count for nobody, unless only the mode of the backend's service has changed.
func (m *model) keepFormer(before map[endpoint]origin) {
	for at, origin := range before {
		if _, claimed := m.endpoints[at]; claimed {
			continue
		}
		if !m.there[origin.backend] {
			origin.backend = lb.BackendKey{}
		}
		m.endpoints[at] = origin
	}
}

// forget drops what belongs to backends that are not there: one that leaves
// takes its flows with it, and does not find them again when it returns. So does a
// service with its turns.
func (m *model) forget() {
	maps.DeleteFunc(m.turns, func(s lb.ServiceKey, _ uint64) bool { return m.services[s] == nil })
	maps.DeleteFunc(m.flows, func(_ modelFlow, e *modelEntry) bool { return !m.there[e.backend] })
	maps.DeleteFunc(m.translations, func(_ modelFlow, t *translation) bool { return !m.there[t.backend] })
	maps.DeleteFunc(m.returns, func(_ returnKey, t *translation) bool { return !m.there[t.backend] })
	for key, t := range m.fragments {
		t.gone = t.gone || !m.stays(&t)
		m.fragments[key] = t
	}
}

// stays says that whoever a datagram is for or from is still known.
func (m *model) stays(t *treatment) bool {
	if t.pass || t.backend != (lb.BackendKey{}) {
		return t.pass || m.there[t.backend]
	}
	o, known := m.endpoints[t.from]
	return known && o.backend == t.backend
}

// ours says that the destination is a VIP or the pool's, or the source the
// address of an endpoint.
func (m *model) ours(p *packet) bool {
	return m.vips[p.destination] || slices.Contains(m.state.Pool.Addresses, p.destination) || m.hosts[p.source]
}

// inPool says that packets to there are full NAT's.
func (m *model) inPool(a netip.Addr, port uint16) bool {
	pool := &m.state.Pool
	return slices.Contains(pool.Addresses, a) && pool.FirstPort <= port && port <= pool.LastPort
}

// decide says how the packet ends.
func (m *model) decide(frame []byte, seen seen) verdict {
	p, outcome := readFrame(frame, m.mac, m.tags)
	if outcome != "" {
		return p.untouched(outcome)
	}
	v := m.place(&p, seen)
	v.ipLength = uint64(p.length)
	if p.part == firstFragment {
		m.rememberFragment(&p, &v)
	}
	return v
}

// untouched is the verdict over a packet that stays as it is, or is lost.
func (p *packet) untouched(outcome string) verdict {
	return verdict{outcome: outcome, rewritten: rewritten{frame: p.frame}}
}

const unserved = "passed_no_service"

// place finds out what the packet belongs to.
func (m *model) place(p *packet, seen seen) verdict {
	switch {
	case p.part == laterFragment:
		return m.laterFragment(p)
	case p.unwalked:
		if m.ours(p) {
			return p.untouched("dropped_extension_headers")
		}
		return p.untouched(unserved)
	case p.isICMP():
		return m.icmp(p)
	case !p.ports:
		return p.untouched(unserved)
	}
	if s := m.services[lb.ServiceKey{VIP: p.destination, Port: p.dport, Protocol: lb.Protocol(p.protocol)}]; s != nil {
		return m.toBackend(p, s, seen)
	}
	if m.inPool(p.destination, p.dport) {
		return m.translatedBack(p)
	}
	from := endpoint{netip.AddrPortFrom(p.source, p.sport), p.protocol}
	if o, ok := m.endpoints[from]; ok {
		return m.back(p, o.backend, change{source: o.at, mss: o.mss}, treatment{vip: o.at.Addr(), from: from})
	}
	return p.untouched(unserved)
}

// at is the service's address and port.
func (s *Service) at() netip.AddrPort { return netip.AddrPortFrom(s.VIP, s.Port) }

// find returns a backend's service and its index there; the service is nil where
// it is not configured.
func (m *model) find(key lb.BackendKey) (*Service, int) {
	s := m.services[key.Service]
	if s == nil {
		return nil, 0
	}
	i := slices.IndexFunc(s.Backends, func(b lb.Backend) bool { return s.BackendKey(b) == key })
	if i < 0 {
		return nil, 0
	}
	return s, i
}

// asker is the part of a packet by which a backend is chosen. ICMP errors ask
// for the flow that they tell of.
type asker struct {
	client   netip.AddrPort
	protocol byte
	flags    byte
}

func (a asker) opens() bool { return a.protocol == protoTCP && a.flags&(flagSYN|flagACK) == flagSYN }

// toBackend sends a client's packet on.
func (m *model) toBackend(p *packet, s *Service, seen seen) verdict {
	if !p.complete() {
		return p.untouched(malformed)
	}
	a := asker{netip.AddrPortFrom(p.source, p.sport), p.protocol, p.flags}
	c := choice{hash: flowHash(a.client)}
	if outcome := m.choose(&c, s, a); outcome != "" {
		return p.untouched(outcome)
	}
	backend := s.Backends[c.backend]
	t := s.treatment(backend, c.hash)
	change := change{mss: s.MSS}
	complaint := ""
	if c.translation != nil {
		if !c.translation.pool.IsValid() {
			if outcome := m.exhausted(c.translation, seen); outcome != "" {
				return p.untouched(outcome)
			}
			complaint = m.learn(c.translation, seen)
		}
		t.pool = c.translation.pool.Addr()
		change.source = c.translation.pool
	}
	switch s.Mode {
	case lb.NAT, lb.FullNAT:
		change.destination = netip.AddrPortFrom(backend.Address, backend.Port)
	case lb.DSCP:
		change.destination = netip.AddrPortFrom(backend.Address, 0)
		change.dscp = s.DSCP
	}
	v := m.forward(p, change, t)
	v.opens, v.complaint = c.opens, complaint
	return v
}

// mtu is the largest IP packet on the way to backend i.
func (s *Service) mtu(i int) int {
	if mtu := int(s.Paths[i].MTU); mtu != 0 {
		return mtu
	}
	return 1500
}

// treatment is what a packet gets that goes to a backend.
func (s *Service) treatment(backend lb.Backend, hash uint32) treatment {
	return treatment{backend: s.BackendKey(backend), mode: s.Mode, dscp: s.DSCP, hash: hash}
}

// forward sends a packet to the backend by the way of its service's mode.
func (m *model) forward(p *packet, c change, t treatment) verdict {
	s, i := m.find(t.backend)
	backend, path := s.Backends[i], s.Paths[i]
	most := s.mtu(i) - overhead(t.mode, backend.Address)
	if p.length > most && t.mode != lb.L2DSR && !(m.gso && p.protocol == protoTCP) {
		return m.tooBig(p, most)
	}
	r := p.apply(c)
	if t.mode.Tunnels() {
		r.encapsulate(p, t.mode, path.Local, backend.Address, t.hash)
	}
	v := verdict{outcome: "forwarded", rewritten: r, backend: t.backend, treatment: &t}
	v.leave(p, m.ingress, path.Interface, path.MAC, path.Source)
	return v
}

// leave gives the frame its way out: 0 is the interface that it came in on.
func (v *verdict) leave(p *packet, ingress, egress int, to, from net.HardwareAddr) {
	copy(v.frame[:6], to)
	copy(v.frame[6:], from)
	if egress != 0 && egress != ingress {
		v.elsewhere = true
		v.untag(p)
	}
}

// translatedBack is the way back of full NAT.
func (m *model) translatedBack(p *packet) verdict {
	t := m.returns[returnKey{netip.AddrPortFrom(p.source, p.sport), netip.AddrPortFrom(p.destination, p.dport), p.protocol}]
	if t == nil {
		return p.untouched("dropped_no_flow")
	}
	if p.complete() {
		t.finBackend = t.finBackend || p.flags&flagFIN != 0
		t.rst = t.rst || p.flags&flagRST != 0
	}
	s, _ := m.find(t.backend)
	return m.back(p, t.backend, change{source: s.at(), destination: t.client, mss: s.MSS}, treatment{vip: s.VIP, client: t.client.Addr()})
}

// back sends a backend's packet to the client, by the kernel's routes.
func (m *model) back(p *packet, backend lb.BackendKey, c change, t treatment) verdict {
	if !p.complete() {
		return p.untouched(malformed)
	}
	t.back, t.backend = true, backend
	source, destination := p.source, p.destination
	if c.source.Addr().IsValid() {
		source = c.source.Addr()
	}
	if c.destination.Addr().IsValid() {
		destination = c.destination.Addr()
	}
	hop := hopTo(destination)
	if staysOnLink(source) {
		hop = noHop
	}
	v := verdict{outcome: "passed_to_route", treatment: &t, backend: backend}
	switch hop.kind {
	case unix.RTN_UNREACHABLE, unix.RTN_BLACKHOLE, unix.RTN_PROHIBIT:
		return p.untouched("dropped_no_route")
	case unix.RTN_UNICAST:
		if p.length > hop.mtu {
			if p.six || p.df {
				return m.tooBig(p, hop.mtu)
			}
		} else if hop.mac != nil {
			v.outcome = "returned"
		}
	}
	v.rewritten = p.apply(c)
	if v.outcome == "returned" {
		v.leave(p, m.ingress, hop.link.index, hop.mac, hop.link.mac)
	}
	return v
}

// noHop is where the kernel's own stack has the say.
var noHop hop

// staysOnLink says that the kernel sends nothing on that has this source: a link's
// address, a group's or the host's own, of IPv6.
func staysOnLink(a netip.Addr) bool {
	return a.Is6() && !a.Is4In6() && (a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsLoopback())
}

// tooBig tells the sender of a packet how long it may be.
func (m *model) tooBig(p *packet, mtu int) verdict {
	if p.part == laterFragment || p.isICMP() || !isHost(p.source) {
		return p.untouched("dropped_too_big")
	}
	return verdict{outcome: "answered_too_big", rewritten: p.tooBigAnswer(mtu)}
}

// isHost says that there may be somebody to answer.
func isHost(a netip.Addr) bool {
	return !a.IsMulticast() && !a.IsUnspecified() && !a.IsLoopback() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// icmp places an ICMP packet: an error that tells of a flow goes to that flow's
// end, all else is the kernel's.
func (m *model) icmp(p *packet) verdict {
	q, ok := p.readQuote()
	if !ok {
		return p.untouched(unserved)
	}
	from, to := netip.AddrPortFrom(q.source, q.sport), netip.AddrPortFrom(q.destination, q.dport)
	if s := m.services[lb.ServiceKey{VIP: q.source, Port: q.sport, Protocol: lb.Protocol(q.protocol)}]; s != nil && p.destination == q.source {
		return m.errorToBackend(p, &q, s)
	}
	if slices.Contains(m.state.Pool.Addresses, p.destination) {
		t := m.returns[returnKey{to, from, q.protocol}]
		if t == nil {
			return p.untouched(unserved)
		}
		s, _ := m.find(t.backend)
		return m.back(p, t.backend, change{quoted: &q, quotedSource: t.client, quotedDestination: s.at(),
			source: netip.AddrPortFrom(s.VIP, 0), destination: netip.AddrPortFrom(t.client.Addr(), 0)}, treatment{})
	}
	if o, ok := m.endpoints[endpoint{to, q.protocol}]; ok && p.destination == q.source {
		c := change{quoted: &q, quotedDestination: o.at}
		if p.source == q.destination {
			c.source = netip.AddrPortFrom(o.at.Addr(), 0)
		}
		return m.back(p, o.backend, c, treatment{})
	}
	return p.untouched(unserved)
}

// errorToBackend sends an ICMP error on that tells of a backend's packet to a
// client.
func (m *model) errorToBackend(p *packet, q *quote, s *Service) verdict {
	a := asker{client: netip.AddrPortFrom(q.destination, q.dport), protocol: protoTCP, flags: flagACK}
	c := choice{hash: flowHash(a.client)}
	if outcome := m.choose(&c, s, a); outcome != "" {
		return p.untouched(outcome)
	}
	if !p.complete() {
		return p.untouched(malformed)
	}
	backend := s.Backends[c.backend]
	change := change{}
	outer := netip.AddrPortFrom(backend.Address, 0)
	switch s.Mode {
	case lb.DSCP:
		change.destination, change.dscp, change.quoted = outer, s.DSCP, q
	case lb.NAT, lb.FullNAT:
		change.destination, change.quoted = outer, q
		change.quotedSource = netip.AddrPortFrom(backend.Address, backend.Port)
	}
	if t := c.translation; t != nil {
		change.source, change.quotedDestination = netip.AddrPortFrom(t.pool.Addr(), 0), t.pool
	}
	return m.forward(p, change, s.treatment(backend, c.hash))
}

// laterFragment places a packet without ports by what its datagram's first
// fragment got.
func (m *model) laterFragment(p *packet) verdict {
	t, known := m.fragments[p.fragmentKey()]
	switch {
	case !known && m.ours(p):
		return p.untouched("dropped_fragment")
	case !known:
		return p.untouched(unserved)
	case !p.complete():
		return p.untouched(malformed)
	case t.pass:
		return p.untouched(unserved)
	case t.gone:
		return p.untouched("dropped_fragment")
	}
	bare := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, 0) }
	if t.back {
		return m.back(p, t.backend, change{source: bare(t.vip), destination: bare(t.client)}, t)
	}
	s, i := m.find(t.backend)
	if !s.up(i) {
		return p.untouched("dropped_backend_down")
	}
	c := change{}
	switch t.mode {
	case lb.DSCP:
		c = change{destination: bare(s.Backends[i].Address), dscp: t.dscp}
	case lb.NAT, lb.FullNAT:
		c = change{destination: bare(s.Backends[i].Address), source: bare(t.pool)}
	}
	return m.forward(p, c, t)
}

func (p *packet) fragmentKey() fragmentKey {
	key := fragmentKey{source: p.source, destination: p.destination, id: p.id}
	if !p.six {
		key.protocol = p.protocol
	}
	return key
}

// rememberFragment keeps what a first fragment got for those that follow.
func (m *model) rememberFragment(p *packet, v *verdict) {
	switch {
	case v.treatment != nil:
		m.fragments[p.fragmentKey()] = *v.treatment
	case v.outcome == unserved && m.ours(p):
		m.fragments[p.fragmentKey()] = treatment{pass: true}
	}
}

// choice is the backend for a packet.
type choice struct {
	hash    uint32
	backend int
	// opens: this packet begins a connection.
	opens       bool
	translation *translation
}

// choose picks the backend of a service, or names the outcome if there is none.
func (m *model) choose(c *choice, s *Service, a asker) (outcome string) {
	table := m.tables[s.Key()].slots
	if len(table) == 0 {
		return "dropped_no_backend"
	}
	if s.Mode == lb.FullNAT {
		outcome = m.translate(c, s, a)
	} else {
		m.schedule(c, s, a)
	}
	if outcome == "" && !s.up(c.backend) {
		return "dropped_backend_down"
	}
	return outcome
}

// bySlot is the backend that the table has for a number: a hash for Maglev, a
// turn for round robin.
func (m *model) bySlot(s *Service, slot uint64) int {
	table := m.tables[s.Key()].slots
	var members []int
	for i := range s.Backends {
		if s.member(i) {
			members = append(members, i)
		}
	}
	return members[table[slot]]
}

func (m *model) byHash(s *Service, hash uint32) int {
	return m.bySlot(s, uint64(hash)*uint64(len(m.tables[s.Key()].slots))>>32)
}

func (m *model) takeTurn(s *Service) int {
	turn := m.turns[s.Key()]
	m.turns[s.Key()]++
	return m.bySlot(s, turn%uint64(len(m.tables[s.Key()].slots)))
}

// schedule chooses without translation.
func (m *model) schedule(c *choice, s *Service, a asker) {
	if s.Scheduler == lb.Maglev {
		c.backend, c.opens = m.byHash(s, c.hash), a.opens()
		return
	}
	key := modelFlow{a.client, s.Key()}
	opening := a.opens() || a.protocol == protoUDP
	if known := m.flows[key]; known != nil && !(known.closing && opening) {
		known.closing = known.closing || a.protocol == protoTCP && a.flags&(flagFIN|flagRST) != 0
		_, c.backend = m.find(known.backend)
		return
	}
	if !opening {
		c.backend = m.byHash(s, c.hash)
		return
	}
	c.backend, c.opens = m.takeTurn(s), true
	m.flows[key] = &modelEntry{backend: s.BackendKey(s.Backends[c.backend])}
}

// translate chooses for full NAT: by the flow that is known, or a new one.
func (m *model) translate(c *choice, s *Service, a asker) (outcome string) {
	key := modelFlow{a.client, s.Key()}
	known := m.translations[key]
	if known == nil || known.closed() && a.opens() {
		if a.protocol == protoTCP && !a.opens() {
			return "dropped_no_flow"
		}
		if known != nil {
			m.drop(known)
		}
		if c.backend, c.opens = m.byHash(s, c.hash), true; s.Scheduler == lb.RoundRobin {
			c.backend = m.takeTurn(s)
		}
		c.translation = &translation{modelFlow: key, backend: s.BackendKey(s.Backends[c.backend])}
		m.translations[key] = c.translation
		return ""
	}
	_, c.backend = m.find(known.backend)
	c.translation = known
	// What is dropped ends nothing.
	if a.protocol == protoTCP && s.up(c.backend) {
		known.finClient = known.finClient || a.flags&flagFIN != 0
		known.rst = known.rst || a.flags&flagRST != 0
	}
	return ""
}

func (m *model) drop(t *translation) {
	delete(m.translations, t.modelFlow)
	delete(m.returns, t.returnKey())
}

func (t *translation) returnKey() returnKey {
	return returnKey{netip.AddrPortFrom(t.backend.Address, t.backend.Port), t.pool, byte(t.service.Protocol)}
}

// exhausted names the outcome where the program had no room for a new flow and
// may say so.
func (m *model) exhausted(t *translation, seen seen) string {
	if !slices.Contains(m.mayExhaust, seen.dropped) {
		return ""
	}
	m.drop(t)
	return seen.dropped
}

// learn takes note of the pool's address and port of a new flow, and says what is
// wrong with them.
func (m *model) learn(t *translation, seen seen) (complaint string) {
	if seen.pool == nil {
		return ""
	}
	t.pool = seen.pool(t.modelFlow)
	if !m.inPool(t.pool.Addr(), t.pool.Port()) {
		return t.pool.String() + " is not in the pool"
	}
	if other := m.returns[t.returnKey()]; other != nil {
		return t.pool.String() + " belongs to the flow of " + other.client.String() + " to the same backend"
	}
	m.returns[t.returnKey()] = t
	return ""
}

// flowHash is the hash that docs/architecture.md gives, over the client's address and
// port as they are in the packet.
func flowHash(client netip.AddrPort) uint32 {
	mix := func(h uint64) uint64 {
		h *= 0xff51afd7ed558ccd
		h ^= h >> 32
		return h * 0xc4ceb9fe1a85ec53
	}
	port := uint64(bits.ReverseBytes16(client.Port())) << 32
	a := client.Addr().AsSlice()
	if client.Addr().Is4() {
		return uint32(mix(port|uint64(binary.LittleEndian.Uint32(a))) >> 32)
	}
	return uint32(mix(port+binary.LittleEndian.Uint64(a)*0x9e3779b97f4a7c15+
		binary.LittleEndian.Uint64(a[8:])*0xc2b2ae3d27d4eb4f) >> 32)
}
