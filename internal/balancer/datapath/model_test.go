// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// model is the oracle: it decides on packets as the data plane should, written from the rules and not from the C. It
// keeps flows, turns and fragments.
type model struct {
	mac     net.HardwareAddr
	options Options
	// now decides which changes have settled; clock is the time of the data plane, in milliseconds. Only the test moves
	// them.
	now   time.Time
	clock uint32
	// passed is the same without a wrap, for work that is done each whole second.
	passed time.Duration
	programInputs
	// ingress is the index of the interface that packets come in on.
	ingress int
	// tags: a VLAN tag is in the frame. Before TC, the kernel moves it into metadata; one in the frame of a test run is
	// a second one then.
	tags bool
	// gso is the length of the payload of the segments that the kernel will cut packets into; 0: it cuts none.
	gso int
	// mayExhaust lists the outcomes in which a new full-NAT flow may end
	// instead: only the program knows when its ports or its table are used up.
	mayExhaust []string

	state    lb.State
	services map[lb.ServiceKey]*lb.RoutedService
	vips     map[netip.Addr]bool
	// endpoints are those of the backends of NAT, and of those that have left recently.
	endpoints map[endpoint]origin
	// hosts are the addresses of endpoints.
	hosts map[netip.Addr]bool

	standings map[lb.ServiceKey]*serviceState
	// numbered are the same by their ids, and those of services that have left.
	numbered map[uint32]*serviceState
	// tables are those that were built, by their recipes.
	tables map[string][]uint16
	lives  map[lb.BackendKey]*modelLife
	loads  map[uint32]*modelLoad
	// flows are proven, newcomers are not.
	flows, newcomers *modelFlows

	// returns are the flows of full NAT by the 5-tuple of their replies.
	returns   map[returnKey]*remembered
	fragments map[fragmentKey]disposition

	// stale: the next hop that a CPU has stored for replies may be invalid, because their flow is another one now, or
	// gone; the CPU may use it until the clock moves.
	stale bool
	// failOpen is the outcome of packets for VIPs while the control plane has been away for too long, or another
	// balancer holds the VIPs.
	failOpen string
	// moving: flows are being moved into other tables.
	moving bool

	// met counts events, for tests to know which they have reached.
	met map[string]uint64
}

// endpoint is an end of a flow.
type endpoint struct {
	netip.AddrPort
	protocol byte
}

// origin is the source that an endpoint's packets are translated to.
type origin struct {
	at  netip.AddrPort
	mss uint16
	// untranslated are the destinations whose packets are no replies.
	untranslated []netip.Prefix
	// backend is zero where the endpoint is that of a backend that has left.
	backend lb.BackendKey
	// until is when an endpoint that no backend has any more is forgotten.
	until time.Time
}

// returnKey is the 5-tuple of a backend's reply to a translated flow.
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

// disposition is the decision that all fragments of a datagram share.
type disposition struct {
	// pass: they are the kernel's. Otherwise back: they come from the backend.
	pass, back bool
	backend    lb.BackendKey
	// mode and dscp are those of the service at the time.
	mode lb.Mode
	dscp uint8
	hash uint32
	// vip is the address that a backend's is translated to, and from the endpoint that it was, for NAT.
	vip  netip.Addr
	from endpoint
	// client and pool are those of the flow, for full NAT.
	client, pool netip.Addr
	// gone: the backend has left since.
	gone bool
}

// verdict is the outcome of a packet, with the packet as it leaves.
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
	// sign is the packet's evidence of its backend's health: it answers a SYN, or reports the backend unreachable.
	sign backendSignal
	// ipLength is the length of the IP packet in bytes.
	ipLength uint64
	// complaint is the fault in the choice that the program made, where it had one.
	complaint string
	treatment *disposition
}

// seen is the program's treatment of the packet. The model asks it only for values that no rule gives.
type seen struct {
	// pool is the pool's address and port of a new flow, from the program's own table:
	// the flow's first packets may all be too big to be sent.
	pool func(*remembered) netip.AddrPort
	// dropped is the outcome that the program counted, if the caller knows.
	dropped string
	// due is when the service's next connection is due, since the packet; from and until
	// are the times before and after the packet. All by the kernel's monotonic clock,
	// in nanoseconds.
	due         func(lb.ServiceKey) uint64
	from, until uint64
}

// programInputs has the values that the model takes from the program's side, for they follow from no rule: numbers, the
// secret of the tables, and the sequence of wrr.
type programInputs struct {
	secret       uint64
	serviceID    func(lb.ServiceKey) uint32
	groupID      func(name string) uint32
	backendIndex func(lb.BackendKey) uint32
	sequenceOf   func(lb.ServiceKey) []int
	// marks reports whether the slot of a hash is marked as one that has changed hands: marks of previous transitions
	// go when no flow is remembered any more.
	marks func(key lb.ServiceKey, hash uint32) bool
}

// newModel returns a model without a configuration.
func newModel(mac net.HardwareAddr, options Options) *model {
	return &model{mac: mac, options: options, ingress: loopback, now: modelEpoch, clock: firstClock,
		passed:    firstClock * time.Millisecond,
		standings: map[lb.ServiceKey]*serviceState{}, numbered: map[uint32]*serviceState{},
		lives: map[lb.BackendKey]*modelLife{}, loads: map[uint32]*modelLoad{},
		flows: newModelFlows(options.FlowLimit), newcomers: newModelFlows(options.UnprovenLimit),
		returns: map[returnKey]*remembered{}, tables: map[string][]uint16{},
		fragments: map[fragmentKey]disposition{}, met: map[string]uint64{}}
}

// firstClock is the data plane's time when a test begins: it soon wraps around.
const firstClock = 0xffffffff - 100_000

// modelEpoch is the time at which each test begins.
var modelEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// apply changes the configuration; flows, turns and fragments stay, except those of services and backends that are
// removed.
func (m *model) apply(state lb.State) error {
	m.state, m.stale = state, true
	previous, before := m.services, m.endpoints
	m.services, m.vips = map[lb.ServiceKey]*lb.RoutedService{}, map[netip.Addr]bool{}
	m.endpoints, m.hosts = map[endpoint]origin{}, map[netip.Addr]bool{}
	lives, standings := m.lives, m.standings
	var recounted []*serviceState
	m.lives, m.standings = map[lb.BackendKey]*modelLife{}, map[lb.ServiceKey]*serviceState{}
	for i := range state.Services {
		service := &state.Services[i]
		m.services[service.Key()], m.vips[service.VIP] = service, true
		for _, backend := range service.Backends {
			m.keepLife(service.BackendKey(backend), lives)
			if service.Mode == lb.NAT {
				at := endpoint{netip.AddrPortFrom(backend.Address, backend.Port), byte(service.Protocol)}
				m.endpoints[at] = origin{at: serviceAt(service), mss: service.MSS, untranslated: service.Untranslated,
					backend: service.BackendKey(backend)}
			}
		}
		at := standings[service.Key()]
		if at != nil && at.tracked != isTracked(service) {
			recounted = append(recounted, at)
		}
		if at != nil && sameService(service, previous[service.Key()]) {
			m.standings[service.Key()] = at
			continue
		}
		anew, cameBack := at == nil || !at.tracked, m.returned(service, before)
		if err := m.applyService(service, at); err != nil {
			return err
		}
		if anew {
			m.noteUnremembered(service)
		}
		if cameBack && service.Mode == lb.NAT && isTracked(service) {
			m.standings[service.Key()].cameBack = m.clock | 1
		}
	}
	m.keepPrevious(before)
	for at := range m.endpoints {
		m.hosts[at.Addr()] = true
	}
	m.forget()
	m.recount(recounted)
	return nil
}

// sameService says that a service has not changed, without comparing its backends where it shares them with the
// previous one: comparing them all would take too long in a long run.
func sameService(s, previous *lb.RoutedService) bool {
	if previous == nil || unsafe.SliceData(s.Backends) != unsafe.SliceData(previous.Backends) ||
		len(s.Backends) != len(previous.Backends) ||
		unsafe.SliceData(s.Paths) != unsafe.SliceData(previous.Paths) || len(s.Paths) != len(previous.Paths) {
		return false
	}
	a, b := s.Service, previous.Service
	a.Backends, b.Backends = nil, nil
	return reflect.DeepEqual(a, b)
}

// keepLife keeps a backend that stays. A new one gets a life of its own; but it inherits the load of its index, which
// flows of previous owners change.
func (m *model) keepLife(key lb.BackendKey, lives map[lb.BackendKey]*modelLife) {
	if m.lives[key] = lives[key]; m.lives[key] != nil {
		return
	}
	index := m.backendIndex(key)
	if m.loads[index] == nil {
		m.loads[index] = &modelLoad{}
	}
	m.loads[index].penalty, m.loads[index].quiet = 0, 0
	m.lives[key] = &modelLife{m.loads[index]}
}

// applyService gives a service its table. at is nil where it is new.
func (m *model) applyService(s *lb.RoutedService, at *serviceState) error {
	owners, err := m.ownersOf(s)
	if err != nil {
		return err
	}
	if at == nil {
		at = &serviceState{id: m.serviceID(s.Key()), tracked: isTracked(s), bySource: s.BySource()}
	}
	m.standings[s.Key()], m.numbered[at.id] = at, at
	if at.bySource != s.BySource() {
		at.rehash(owners, m.recipeFor(s))
	} else {
		at.change(owners, m.recipeFor(s), m.now, transitionWindow(s))
	}
	if at.sequence = takersOf(s); s.Scheduler == lb.WeightedRoundRobin && len(owners) > 0 {
		at.sequence = m.sequenceOf(s.Key())
	}
	if at.tracked && !isTracked(s) {
		at.moved = make([]bool, max(1, len(owners)))
		at.markAll()
	}
	at.untrackedBefore = isTracked(s) && (at.untrackedBefore || !at.tracked)
	at.tracked, at.bySource = isTracked(s), s.BySource()
	return nil
}

// previousFor is for how long packets of backends that have left are taken for replies.
const previousFor = 15 * time.Minute

// keepPrevious keeps the endpoints that a state does not have any more. Their packets
// count for no backend, unless only the mode of the backend's service has changed.
func (m *model) keepPrevious(before map[endpoint]origin) {
	for at, origin := range before {
		if _, claimed := m.endpoints[at]; claimed {
			continue
		}
		if m.lives[origin.backend] == nil {
			origin.backend = lb.BackendKey{}
		}
		if origin.until.IsZero() {
			origin.until = m.now.Add(previousFor)
		}
		if !m.now.After(origin.until) {
			m.endpoints[at] = origin
		}
	}
}

// forget marks the datagrams whose backends have left.
func (m *model) forget() {
	for key, t := range m.fragments {
		t.gone = t.gone || !m.stays(&t)
		m.fragments[key] = t
	}
}

// stays says that the backend that a datagram is for or from is still known.
func (m *model) stays(t *disposition) bool {
	if t.pass || t.backend != (lb.BackendKey{}) {
		return t.pass || m.lives[t.backend] != nil
	}
	o, known := m.endpoints[t.from]
	return known && o.backend == t.backend
}

// ours reports whether the destination is a VIP or the pool's, or the source the address of an endpoint.
func (m *model) ours(p *packet) bool {
	return m.vips[p.destination] || slices.Contains(m.state.Pool.All(), p.destination) || m.hosts[p.source]
}

// inPool says that packets to there are full NAT's.
func (m *model) inPool(a netip.Addr, port uint16) bool {
	pool := &m.state.Pool
	return slices.Contains(pool.All(), a) && pool.FirstPort <= port && port <= pool.LastPort
}

// decide returns the verdict on a packet.
func (m *model) decide(frame []byte, seen seen) verdict {
	p, outcome := readFrame(frame, m.mac, m.tags, m.gso > 0)
	if outcome != "" {
		return p.untouched(outcome)
	}
	if m.failOpen != "" && m.vips[p.destination] {
		return p.untouched(m.failOpen)
	}
	v := m.classify(&p, seen)
	v.ipLength = uint64(p.length)
	if p.part == firstFragment {
		m.rememberFragment(&p, &v)
	}
	return v
}

// untouched is the verdict on a packet that stays as it is, or is dropped.
func (p *packet) untouched(outcome string) verdict {
	return verdict{outcome: outcome, rewritten: rewritten{frame: p.frame}}
}

const unserved = "passed_no_service"

// notForwarded is the outcome of a packet of a backend of NAT to this host, or to a destination without a route.
const notForwarded = "passed_not_forwarded"

// untranslated is the outcome of a packet to a destination that is no client of the service.
const untranslated = "passed_untranslated"

// unknown is the outcome of a packet of no flow of the service, which tracks its flows.
const unknown = "passed_no_flow"

// denied is the outcome of a packet from a client that its service does not serve.
const denied = "dropped_denied"

// denies reports whether a service does not serve a client.
func denies(s *lb.RoutedService, client netip.Addr) bool {
	longest := func(list []netip.Prefix) int {
		bits := -1
		for _, p := range list {
			if p.Contains(client) {
				bits = max(bits, p.Bits())
			}
		}
		return bits
	}
	allowed, denied := longest(s.Allow), longest(s.Deny)
	return denied > allowed || allowed < 0 && len(s.Allow) > 0
}

// excepts reports whether packets of an endpoint to a destination are no replies.
func (o origin) excepts(destination netip.Addr) bool {
	return slices.ContainsFunc(o.untranslated, func(p netip.Prefix) bool { return p.Contains(destination) })
}

// classify finds the service, flow or endpoint that the packet belongs to.
func (m *model) classify(p *packet, seen seen) verdict {
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
		if p.complete() {
			ends := m.noteReply(p, o.backend)
			switch {
			case o.excepts(p.destination):
				return p.untouched(untranslated)
			case !m.isReply(o, netip.AddrPortFrom(p.destination, p.dport), true) && !ends:
				return p.untouched(unknown)
			}
		}
		return m.back(p, o.backend, change{source: o.at, mss: o.mss}, disposition{vip: o.at.Addr(), from: from})
	}
	return p.untouched(unserved)
}

// isReply reports whether a packet from an endpoint to a client is part of a flow of the service, as far as that can be
// known. alive: it shows that the flow lives.
func (m *model) isReply(o origin, client netip.AddrPort, alive bool) bool {
	s, i := m.find(o.backend)
	if s == nil || s.Mode != lb.NAT || !isTracked(s) || !o.until.IsZero() {
		return true
	}
	name := m.flowOf(s, clientPacket{client: client})
	for _, table := range []*modelFlows{m.flows, m.newcomers} {
		if e := table.known[name]; e != nil && m.valid(e) && e.backend == o.backend {
			if alive && e.state != stateOpening {
				m.refresh(e)
			}
			m.met["reply: of a known flow"]++
			return true
		}
	}
	at, hash := m.standings[s.Key()], selectionHash(s, clientPacket{client: client})
	switch {
	case at.cameBack != 0:
		m.met["reply: of a backend that came back"]++
		return true
	case m.moving:
		m.met["reply: while flows move"]++
		return true
	case at.unremembered == 0:
	case len(at.owners) > 0 && indexOfBackend(s, at.owners[scale(hash, len(at.owners))]) == i:
		m.met["reply: by the hash"]++
		return true
	case at.base != nil && at.base[scale(hash, len(at.base))] == o.backend:
		m.met["reply: by the base's hash"]++
		return true
	}
	return false
}

// at is the service's address and port.
func serviceAt(s *lb.RoutedService) netip.AddrPort { return netip.AddrPortFrom(s.VIP, s.Port) }

// find returns a backend's service and its index there; the service is nil where
// it is not configured.
func (m *model) find(key lb.BackendKey) (*lb.RoutedService, int) {
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

// clientPacket is the part of a packet by which a backend is chosen. ICMP errors ask for the flow that they quote.
type clientPacket struct {
	client   netip.AddrPort
	protocol byte
	flags    byte
	// seq is the TCP sequence number.
	seq uint32
	// quiet: nothing is to be noted.
	quiet bool
}

func (a clientPacket) opens() bool {
	return a.protocol == protoTCP && a.flags&(flagSYN|flagACK) == flagSYN
}

// isMidConnection reports whether the packet is one in the middle of a TCP connection.
func (a clientPacket) isMidConnection() bool { return a.protocol == protoTCP && !a.opens() && !a.quiet }

// toBackend sends a client's packet on.
func (m *model) toBackend(p *packet, s *lb.RoutedService, seen seen) verdict {
	if !p.complete() {
		return p.untouched(malformed)
	}
	if denies(s, p.source) {
		return p.untouched(denied)
	}
	a := clientPacket{client: netip.AddrPortFrom(p.source, p.sport), protocol: p.protocol, flags: p.flags, seq: p.seq}
	c := choice{}
	if outcome := m.choose(&c, s, a, seen); outcome != "" {
		v := m.refused(p, answersRefused(s, outcome), outcome)
		v.complaint = c.complaint
		return v
	}
	backend := s.Backends[c.backend]
	t := dispositionOf(s, backend, flowHash(a.client))
	change := change{mss: s.MSS}
	t.pool, change.source = c.pool.Addr(), c.pool
	switch s.Mode {
	case lb.NAT, lb.FullNAT:
		change.destination = netip.AddrPortFrom(backend.Address, backend.Port)
	case lb.DSCP:
		change.destination = netip.AddrPortFrom(backend.Address, 0)
		change.dscp = s.DSCP
	}
	v := m.forward(p, change, t)
	v.opens, v.complaint = c.opens, c.complaint
	return v
}

// refused is the verdict on a packet that cannot be sent on: where such packets are answered, it is, if it is whole,
// from a host, and no reset.
func (m *model) refused(p *packet, answers bool, outcome string) verdict {
	reason, dropped := strings.CutPrefix(outcome, "dropped_")
	switch {
	case !answers || !dropped || !slices.Contains(answerable, outcome) || p.part != whole || !p.complete() ||
		!isHost(p.source) || p.flags&flagRST != 0:
		return p.untouched(outcome)
	case p.protocol == protoTCP:
		return verdict{outcome: "reset_" + reason, rewritten: p.reset()}
	}
	return verdict{outcome: "unreachable_" + reason, rewritten: p.unreachableAnswer()}
}

// answersRefused says that the service answers packets that it cannot send on for this reason.
func answersRefused(s *lb.RoutedService, outcome string) bool {
	return s.Limits.Refuse == lb.RefuseByReset || outcome == backendDown && s.Checks.OnDown == lb.ResetFlows
}

// poolAnswers says that backends are answered, too: a service of full NAT does that, unless another balancer may know
// the flow.
func (m *model) poolAnswers() bool {
	return len(m.state.Pool.Others) == 0 && slices.ContainsFunc(m.state.Services, func(s lb.RoutedService) bool {
		return s.Mode == lb.FullNAT && s.Limits.Refuse == lb.RefuseByReset
	})
}

// mtu is the largest IP packet on the path to backend i.
func mtuTo(s *lb.RoutedService, i int) int {
	if mtu := int(s.Paths[i].MTU); mtu != 0 {
		return mtu
	}
	return 1500
}

// dispositionOf is the treatment of a packet that goes to a backend.
func dispositionOf(s *lb.RoutedService, backend lb.Backend, hash uint32) disposition {
	return disposition{backend: s.BackendKey(backend), mode: s.Mode, dscp: s.DSCP, hash: hash}
}

// forward sends a packet to the backend in the mode of its service.
func (m *model) forward(p *packet, c change, t disposition) verdict {
	s, i := m.find(t.backend)
	backend, path := s.Backends[i], s.Paths[i]
	most := mtuTo(s, i) - overhead(t.mode, backend.Address)
	if c.hop = t.mode != lb.L2DSR; c.hop && p.hops <= 1 {
		return m.expired(p, p.destination)
	}
	if m.exceeds(p, most, mtuTo(s, i)) && t.mode != lb.L2DSR {
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

// segment is the length of the largest IP packet on the wire that a frame stands for.
func (m *model) segment(p *packet) int {
	headers := p.transport + 8
	if m.gso == 0 {
		return p.length
	}
	if p.protocol == protoTCP {
		headers = p.transport + 4*int(p.frame[p.ip+p.transport+12]>>4)
	}
	return min(p.length, headers+m.gso)
}

// exceeds says that a packet does not fit a path with that MTU, of which tunnels leave most. The kernel cuts segments
// of TCP as much smaller as the tunnel's headers are long.
func (m *model) exceeds(p *packet, most, mtu int) bool {
	switch segment := m.segment(p); {
	case p.length <= most:
		return false
	case p.protocol == protoTCP && segment < p.length:
		return segment > mtu
	default:
		return segment > most
	}
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
	e := m.flowBehind(returnKey{netip.AddrPortFrom(p.source, p.sport), netip.AddrPortFrom(p.destination, p.dport),
		p.protocol})
	switch {
	case e == nil && m.moving:
		return p.untouched(flowsMoving)
	case e == nil:
		return m.refused(p, m.poolAnswers(), noFlow)
	}
	if p.complete() {
		m.refreshBy(e, p.flags&^flagSYN)
		m.noteFlags(e, p.flags)
	}
	s, _ := m.find(e.backend)
	return m.back(p, e.backend, change{source: serviceAt(s), destination: e.end(), bothPorts: true, mss: s.MSS},
		disposition{vip: s.VIP, client: e.client})
}

// flowBehind finds the flow of full NAT that a reply belongs to, if its backend is
// there.
func (m *model) flowBehind(key returnKey) *remembered {
	if e := m.returns[key]; e != nil && m.valid(e) {
		return e
	}
	return nil
}

// back sends a backend's packet to the client, by the kernel's routes.
func (m *model) back(p *packet, backend lb.BackendKey, c change, t disposition) verdict {
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
	v := verdict{outcome: "passed_to_route", treatment: &t, backend: backend, sign: p.backendSignal(c.quoted)}
	switch hop.kind {
	case 0, unix.RTN_LOCAL:
		// A reply of full NAT has another destination then.
		if !c.destination.IsValid() {
			return p.untouched(notForwarded)
		}
	case unix.RTN_UNREACHABLE, unix.RTN_BLACKHOLE, unix.RTN_PROHIBIT:
		return p.untouched("dropped_no_route")
	case unix.RTN_UNICAST:
		tooBig := m.segment(p) > hop.mtu
		if p.hops <= 1 && (tooBig || hop.mac != nil) {
			if t.client.IsValid() {
				// Of full NAT the backend knows the pool's address, and not the VIP.
				source = p.destination
			}
			return m.expired(p, source)
		}
		if tooBig {
			if p.six || p.df {
				return m.tooBig(p, hop.mtu)
			}
		} else if hop.mac != nil {
			v.outcome = "returned"
		}
	}
	// Where the kernel routes it, the kernel counts.
	c.hop = v.outcome == "returned"
	v.rewritten = p.apply(c)
	if v.outcome == "returned" {
		v.leave(p, m.ingress, hop.link.index, hop.mac, hop.link.mac)
	}
	return v
}

// backendSignal is the evidence in a backend's packet of whether it serves.
type backendSignal int

const (
	noSignal backendSignal = iota
	answeredSignal
	refusedSignal
	unreachableSignal
)

// backendSignal reads it, of an ICMP error with its quote.
func (p *packet) backendSignal(q *quote) backendSignal {
	switch {
	case q != nil:
		kind, code := p.frame[p.ip+p.transport], p.frame[p.ip+p.transport+1]
		if p.source == q.destination && (p.six && kind == 1 || !p.six && kind == 3 && code != 4) {
			return unreachableSignal
		}
	case !p.ports || p.protocol != protoTCP:
	case p.flags&flagSYN != 0 && p.flags&flagACK != 0:
		return answeredSignal
	case p.flags&flagRST != 0 && p.flags&flagACK != 0 && p.seq == 0:
		return refusedSignal
	}
	return noSignal
}

// noHop is the hop where the kernel's own stack decides.
var noHop hop

// staysOnLink says that the kernel does not forward packets with this source: a link-local or multicast address or the
// host's own, of IPv6.
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

// expired tells the sender of a packet that its hops are used up.
func (m *model) expired(p *packet, from netip.Addr) verdict {
	if p.part == laterFragment || p.isICMP() || !isHost(p.source) {
		return p.untouched("dropped_time_exceeded")
	}
	return verdict{outcome: "answered_time_exceeded", rewritten: p.expiredAnswer(from)}
}

// isHost says that there may be a host to answer.
func isHost(a netip.Addr) bool {
	return !a.IsMulticast() && !a.IsUnspecified() && !a.IsLoopback() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// icmp places an ICMP packet: an error that quotes a flow goes to that flow's end, all else is the kernel's.
func (m *model) icmp(p *packet) verdict {
	q, ok := p.readQuote()
	if !ok {
		return p.untouched(unserved)
	}
	from, to := netip.AddrPortFrom(q.source, q.sport), netip.AddrPortFrom(q.destination, q.dport)
	if s := m.services[lb.ServiceKey{VIP: q.source, Port: q.sport, Protocol: lb.Protocol(q.protocol)}]; s != nil &&
		p.destination == q.source {
		return m.errorToBackend(p, &q, s)
	}
	if slices.Contains(m.state.Pool.All(), p.destination) {
		e := m.flowBehind(returnKey{to, from, q.protocol})
		if e == nil {
			return p.untouched(unserved)
		}
		s, _ := m.find(e.backend)
		return m.back(p, e.backend, change{quoted: &q, quotedSource: e.end(), quotedDestination: serviceAt(s),
			source: netip.AddrPortFrom(s.VIP, 0), destination: netip.AddrPortFrom(e.client, 0)}, disposition{})
	}
	if o, ok := m.endpoints[endpoint{to, q.protocol}]; ok && p.destination == q.source {
		switch {
		case p.complete() && !m.isReply(o, from, false):
			return p.untouched(unknown)
		case p.complete() && o.excepts(p.destination):
			return p.untouched(untranslated)
		}
		c := change{quoted: &q, quotedDestination: o.at}
		if p.source == q.destination {
			c.source = netip.AddrPortFrom(o.at.Addr(), 0)
		}
		return m.back(p, o.backend, c, disposition{})
	}
	return p.untouched(unserved)
}

// errorToBackend sends an ICMP error on that quotes a backend's packet to a client.
func (m *model) errorToBackend(p *packet, q *quote, s *lb.RoutedService) verdict {
	a := clientPacket{client: netip.AddrPortFrom(q.destination, q.dport), protocol: protoTCP, flags: flagACK,
		quiet: true}
	c := choice{}
	if outcome := m.choose(&c, s, a, seen{}); outcome != "" {
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
	if c.pool.IsValid() {
		change.source, change.quotedDestination = netip.AddrPortFrom(c.pool.Addr(), 0), c.pool
	}
	return m.forward(p, change, dispositionOf(s, backend, flowHash(a.client)))
}

// laterFragment places a packet without ports by its datagram's first fragment.
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
	if !s.Up(i) {
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

// rememberFragment keeps the treatment of a first fragment for those that follow.
func (m *model) rememberFragment(p *packet, v *verdict) {
	switch {
	case v.treatment != nil:
		m.fragments[p.fragmentKey()] = *v.treatment
	case slices.Contains([]string{unserved, notForwarded, untranslated, unknown}, v.outcome) && m.ours(p):
		m.fragments[p.fragmentKey()] = disposition{pass: true}
	}
}
