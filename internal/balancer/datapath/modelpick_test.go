// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// How the model chooses a backend.

// choice is the backend for a packet.
type choice struct {
	hash    uint32
	backend int
	// opens: this packet begins a connection.
	opens bool
	// pool is the source that the packet gets, by full NAT.
	pool netip.AddrPort
	// contested is the flow that the packet's connection may take the place of, once it has
	// proven itself.
	contested *remembered
	// complaint is the fault in a decision that is the program's own.
	complaint string
}

const (
	noBackend     = "dropped_no_backend"
	backendDown   = "dropped_backend_down"
	noFlow        = "dropped_no_flow"
	noRoomForFlow = "dropped_flow_table_full"
	noPort        = "dropped_no_port"
	flowsMoving   = "dropped_flows_moving"
	// The outcomes of packets that a limit refuses.
	overRate, overConnections = "dropped_rate_limit", "dropped_connection_limit"
)

// answerable are the outcomes instead of which a service may answer.
var answerable = []string{noBackend, backendDown, noFlow, noPort, noRoomForFlow, overRate, overConnections}

// selectionHash picks the slots of a packet.
func selectionHash(s *lb.RoutedService, a clientPacket) uint32 {
	if s.BySource() {
		return flowHash(netip.AddrPortFrom(a.client.Addr(), 0))
	}
	return flowHash(a.client)
}

// choose picks the backend of a service, or names the outcome if there is none.
func (m *model) choose(c *choice, s *lb.RoutedService, a clientPacket, seen seen) (outcome string) {
	c.hash = selectionHash(s, a)
	if outcome = m.schedule(c, s, a, seen); outcome == "" && !s.Up(c.backend) {
		return backendDown
	}
	return outcome
}

// schedule chooses by the flow's entry, or makes a new choice.
func (m *model) schedule(c *choice, s *lb.RoutedService, a clientPacket, seen seen) (outcome string) {
	at := m.standings[s.Key()]
	if isTracked(s) || at.isMoved(c.hash) {
		if known, outcome := m.follow(c, s, a, seen); known {
			return outcome
		}
		if m.moving && a.isMidConnection() {
			return flowsMoving
		}
	}
	switch {
	case !isTracked(s):
		return m.byTable(c, s, a, seen)
	case s.Mode == lb.FullNAT && (a.quiet || !a.opens() && a.protocol != protoUDP):
		return noFlow
	case a.quiet || !a.opens() && a.protocol != protoUDP:
		m.noteUntracked(s, a)
		return m.unremembered(c, s, a)
	}
	return m.begin(c, s, a, seen)
}

// follow sends a packet where its flow goes, if that is known.
func (m *model) follow(c *choice, s *lb.RoutedService, a clientPacket, seen seen) (known bool, outcome string) {
	if a.quiet {
		return m.followQuietly(c, s, a)
	}
	e := m.lookUp(m.flowOf(s, a))
	if e != nil && e.state == stateContested {
		e = m.contenderOr(c, e, a)
	}
	if e == nil {
		return false, ""
	}
	if m.reopens(s, e, a) {
		return true, m.reopen(c, s, e, a, seen)
	}
	switch m.begins(s, e, a) {
	case another:
		m.free(e)
		return false, ""
	case newContender:
		c.contested = e
		return false, ""
	}
	if m.moving && a.isMidConnection() && e.state.over() {
		return true, flowsMoving
	}
	_, c.backend = m.find(e.backend)
	if !s.Up(c.backend) {
		switch {
		case a.flags&(flagFIN|flagRST) != 0:
			m.met["ended while its backend is down"]++
			m.note(s, e, nil, a)
		case s.Checks.OnDown == lb.ResetFlows && e.state.live() && e.state != stateContested:
			m.met["reset for its backend is down"]++
			m.setState(e, stateClosed)
		}
		return true, backendDown
	}
	c.pool = e.pool
	m.met["known, tracked: "+strconv.FormatBool(isTracked(s))]++
	if a.opens() && e.isn != a.isn(s) {
		e.isn = a.seq
		e.at.touched[e.bucket] = true
	}
	m.note(s, e, c.contested, a)
	return true, ""
}

// followQuietly is follow for a packet that is only quoted: of two flows with the same ends, the second counts where
// the first one's backend cannot be reached.
func (m *model) followQuietly(c *choice, s *lb.RoutedService, a clientPacket) (known bool, outcome string) {
	for _, table := range []*modelFlows{m.flows, m.newcomers} {
		e := table.known[m.flowOf(s, a)]
		if e == nil {
			continue
		}
		if known, outcome = m.valid(e), ""; !known {
			continue
		}
		_, c.backend = m.find(e.backend)
		c.pool = e.pool
		if s.Up(c.backend) {
			break
		}
		outcome = backendDown
	}
	return known, outcome
}

// contenderOr finds the connection that contests a flow, if a packet is its own, or the flow's
// backend has left: or else the flow, which nothing contests any more where there is none.
func (m *model) contenderOr(c *choice, e *remembered, a clientPacket) *remembered {
	other := m.newcomers.known[e.flowName]
	switch {
	case other == nil:
		m.met["contested: no more"]++
		m.setState(e, stateEstablished)
		return e
	case !m.valid(e):
		m.met["contested: of a backend that left"]++
		m.free(e)
		return other
	case a.opens() || a.seq-other.isn-1 < 1<<16:
		m.met["contested: the rival"]++
		c.contested = e
		return other
	}
	m.met["contested: goes on"]++
	return e
}

// beginning is the effect of a packet on the entry of its flow: the table of docs/internals/state.md.
type beginning int

const (
	// nothing: the packet belongs to the flow, or the flow's backend may have the next one too.
	nothing beginning = iota
	// another flow begins, and the entry is over.
	another
	// newContender: another may begin, and has to prove itself first.
	newContender
)

// isn is the sequence number that is kept of a packet that opens a connection.
func (a clientPacket) isn(s *lb.RoutedService) uint32 {
	if !a.opens() || s.Mode == lb.FullNAT {
		return 0
	}
	return a.seq
}

// begins tells whether a packet begins another flow, and counts the reasons.
func (m *model) begins(s *lb.RoutedService, e *remembered, a clientPacket) beginning {
	if !m.valid(e) {
		m.met["forgotten: of a backend that left"]++
		return another
	}
	_, backend := m.find(e.backend)
	up := s.Up(backend)
	if !a.opens() {
		if a.protocol == protoUDP && !up {
			m.met["forgotten: UDP of a backend that is down"]++
			return another
		}
		return nothing
	}
	again := up && s.Mode != lb.FullNAT && e.isn == a.seq
	if e.state.over() {
		if again && (e.state == stateClientFIN || e.state == stateBackendFIN) {
			m.met["SYN: late"]++
			return nothing
		}
		m.met["forgotten: reused"]++
		return another
	}
	return m.beginsDuring(s, e, up, again, takesFlows(s, backend))
}

// beginsDuring is begins for a SYN and a flow that has not ended. takes: its backend takes
// new ones, if it is not full.
func (m *model) beginsDuring(s *lb.RoutedService, e *remembered, up, again, takes bool) beginning {
	_, backend := m.find(e.backend)
	full := !again && takes && !(up && s.Mode == lb.FullNAT) && m.full(s, backend)
	why := map[bool]string{true: "drained", false: "down"}[up]
	if full {
		why = "full"
	}
	switch {
	case again:
		m.met["SYN: again"]++
		if !takes {
			m.met["SYN: again, drained"]++
		}
		return nothing
	case up && s.Mode == lb.FullNAT, takes && !full:
		m.met["SYN: another, to the same"]++
		return nothing
	case s.Mode == lb.FullNAT, e.state != stateEstablished && e.state != stateContested:
		m.met["SYN: anew, "+why]++
		return another
	case e.at == m.flows:
		m.met["SYN: contests, "+why]++
		return newContender
	case up:
		m.met["SYN: to the same for want of room"]++
		return nothing
	}
	return another
}

// staysWith is the choice where a flow is contested, and there is no room for a rival's entry.
func (m *model) staysWith(c *choice, s *lb.RoutedService) (outcome string) {
	m.met["contested: no room"]++
	c.opens = false
	if _, c.backend = m.find(c.contested.backend); !s.Up(c.backend) {
		return backendDown
	}
	return ""
}

// reopens reports whether a packet begins a flow of full NAT again that has ended.
func (m *model) reopens(s *lb.RoutedService, e *remembered, a clientPacket) bool {
	if s.Mode != lb.FullNAT || a.quiet || !a.opens() || !m.valid(e) || !e.state.over() || e.state == stateRefused {
		return false
	}
	_, backend := m.find(e.backend)
	if !takesFlows(s, backend) || m.full(s, backend) {
		return false
	}
	other, ok := m.affinityBackend(s, a)
	return !ok || other == backend
}

// reopen begins it: with its backend and its source in the pool.
func (m *model) reopen(c *choice, s *lb.RoutedService, e *remembered, a clientPacket, seen seen) (outcome string) {
	if outcome := m.overLimit(c, s, seen); outcome != "" {
		return outcome
	}
	m.met["reopened"]++
	_, c.backend = m.find(e.backend)
	c.pool, c.opens = e.pool, true
	m.setState(e, stateOpening)
	m.refreshBy(e, flagSYN)
	if s.Persistence.On() {
		m.setAffinity(m.affinityOf(s, a), e.backend)
	}
	return ""
}

// byTable chooses for a service that has entries only of flows that a change moves.
func (m *model) byTable(c *choice, s *lb.RoutedService, a clientPacket, seen seen) (outcome string) {
	at := m.standings[s.Key()]
	if a.opens() && s.Limits.Rate != 0 && m.overRate(c, s, seen) {
		return overRate
	}
	if len(at.owners) == 0 {
		return m.withoutTable(c, s, a)
	}
	now, before, apart := m.candidates(s, c.hash)
	c.opens = a.opens()
	c.backend = now
	switch {
	case c.contested != nil:
		if !m.remember(m.flowOf(s, a), backendKeyOf(s, now), stateOpening, a.isn(s)) {
			return m.staysWith(c, s)
		}
		m.setState(c.contested, stateContested)
	case a.quiet:
		if apart {
			c.backend = before
		}
	case m.orphaned(s, c.hash) && (a.opens() || a.protocol == protoUDP):
		m.met["moved: orphaned"]++
		m.remember(m.flowOf(s, a), backendKeyOf(s, now), a.firstState(), a.isn(s))
	case m.orphaned(s, c.hash) && a.flags&flagRST == 0:
		m.met["moved: orphaned, goes on"]++
		m.remember(m.flowOf(s, a), backendKeyOf(s, now), stateSeen, 0)
	case a.opens() && !apart && m.isBack(s, c.hash):
		m.met["moved: opens where it is back"]++
		m.remember(m.flowOf(s, a), backendKeyOf(s, now), stateOpening, a.isn(s))
	case !apart:
	case a.opens():
		m.met["moved: opens"]++
		if !m.remember(m.flowOf(s, a), backendKeyOf(s, now), stateOpening, a.isn(s)) {
			c.backend = before
		}
	default:
		m.met["moved: goes on"]++
		c.backend = before
		if a.protocol == protoUDP {
			m.remember(m.flowOf(s, a), backendKeyOf(s, before), stateFirst, 0)
		} else if a.flags&flagRST == 0 {
			m.remember(m.flowOf(s, a), backendKeyOf(s, before), stateSeen, 0)
		}
	}
	return ""
}

// firstState is that of a flow that a packet begins.
func (a clientPacket) firstState() flowState {
	if a.protocol == protoUDP {
		return stateFirst
	}
	return stateOpening
}

// noteUntracked notes that a packet goes by the hash that its backend may answer.
func (m *model) noteUntracked(s *lb.RoutedService, a clientPacket) {
	if !a.quiet && a.flags&flagRST == 0 {
		m.noteUnremembered(s)
	}
}

// unremembered chooses for a packet of a flow that a tracked service does not know. It gets to know the flow if that
// may be from before the service was tracked, and the packet goes by the base.
func (m *model) unremembered(c *choice, s *lb.RoutedService, a clientPacket) (outcome string) {
	if len(m.standings[s.Key()].owners) == 0 {
		if outcome = m.withoutTable(c, s, a); outcome == "" {
			m.rememberEarlier(c, s, a)
		}
		return outcome
	}
	now, before, apart := m.candidates(s, c.hash)
	if c.backend = now; apart {
		m.met["unremembered: by the base"]++
		c.backend = before
		m.rememberEarlier(c, s, a)
	}
	return ""
}

// rememberEarlier remembers a flow from before the service was tracked at its backend.
func (m *model) rememberEarlier(c *choice, s *lb.RoutedService, a clientPacket) {
	if m.standings[s.Key()].untrackedBefore && a.isMidConnection() && a.flags&flagRST == 0 {
		m.met["unremembered: from before it was tracked"]++
		m.remember(m.flowOf(s, a), backendKeyOf(s, c.backend), stateSeen, 0)
	}
}

// withoutTable chooses where no backend takes new flows.
func (m *model) withoutTable(c *choice, s *lb.RoutedService, a clientPacket) (outcome string) {
	before, usable := m.standings[s.Key()].baseOf(m, c.hash)
	if !usable || a.opens() {
		return noBackend
	}
	m.met["without a table: by the base"]++
	c.backend = before
	return ""
}

// candidates are the backend that the table names, and the one that it named before the changes recently; apart says
// that they differ and both can be used.
func (m *model) candidates(s *lb.RoutedService, hash uint32) (now, before int, apart bool) {
	at := m.standings[s.Key()]
	now = indexOfBackend(s, at.owners[scale(hash, len(at.owners))])
	before, usable := at.baseOf(m, hash)
	return now, before, at.isMoved(hash) && usable && before != now
}

// orphaned says that a hash's slot was that of a backend that nothing can be sent to now: it may move again, and a flow
// that begins there must get an entry.
func (m *model) orphaned(s *lb.RoutedService, hash uint32) bool {
	at := m.standings[s.Key()]
	_, usable := at.baseOf(m, hash)
	return at.base != nil && at.isMoved(hash) && !usable
}

// isBack says that a hash's slot is that of its backend from before the changes, after it was another's.
func (m *model) isBack(s *lb.RoutedService, hash uint32) bool {
	at := m.standings[s.Key()]
	return at.base != nil && at.isMoved(hash) && m.marks(s.Key(), hash)
}

// overLimit names the limit of a service that a new flow is over.
func (m *model) overLimit(c *choice, s *lb.RoutedService, seen seen) (outcome string) {
	if s.Limits.Rate != 0 && m.overRate(c, s, seen) {
		return overRate
	}
	if most := s.Limits.Connections; most != 0 && m.standings[s.Key()].active >= most {
		return overConnections
	}
	return ""
}

// begin chooses for a new flow of a tracked service, and remembers it.
func (m *model) begin(c *choice, s *lb.RoutedService, a clientPacket, seen seen) (outcome string) {
	at := m.standings[s.Key()]
	if outcome := m.overLimit(c, s, seen); outcome != "" {
		return outcome
	}
	switch {
	case len(at.owners) > 0:
	case s.Mode == lb.FullNAT:
		return noBackend
	default:
		if c.contested == nil {
			m.noteUntracked(s, a)
		}
		return m.withoutTable(c, s, a)
	}
	var ok bool
	if c.backend, ok = m.affinityBackend(s, a); !ok {
		if c.backend, ok = m.pick(s, c.hash); !ok {
			return overConnections
		}
	}
	name, must := m.flowOf(s, a), isLimited(s) || s.Mode == lb.FullNAT
	if !m.remember(name, backendKeyOf(s, c.backend), a.firstState(), a.isn(s)) &&
		!(must && m.makeRoom(name) && m.remember(name, backendKeyOf(s, c.backend), a.firstState(), a.isn(s))) {
		switch {
		case must:
			return noRoomForFlow
		case c.contested != nil:
			return m.staysWith(c, s)
		}
		c.opens = a.opens()
		m.noteUntracked(s, a)
		return m.unremembered(c, s, a)
	}
	if s.Mode == lb.FullNAT {
		if outcome := m.takePort(c, m.lookUp(name), seen); outcome != "" {
			return outcome
		}
	}
	if c.contested != nil {
		m.setState(c.contested, stateContested)
	}
	c.opens = true
	if s.Persistence.On() {
		m.setAffinity(m.affinityOf(s, a), backendKeyOf(s, c.backend))
	}
	return ""
}

// affinityBackend is the backend that the client's flows go to.
func (m *model) affinityBackend(s *lb.RoutedService, a clientPacket) (backend int, ok bool) {
	if !s.Persistence.On() {
		return 0, false
	}
	e := m.lookUp(m.affinityOf(s, a))
	if e == nil || !m.valid(e) {
		return 0, false
	}
	_, backend = m.find(e.backend)
	if e.group {
		if backend = slices.IndexFunc(s.Backends, func(b lb.Backend) bool { return b.Address == e.host }); backend < 0 {
			m.met["attached: to a host of others"]++
			return 0, false
		}
	}
	ok = takesFlows(s, backend) && !m.full(s, backend)
	m.met["attached: "+strconv.FormatBool(ok)]++
	return backend, ok
}

// limited says that the service may refuse flows for their number.
func isLimited(s *lb.RoutedService) bool {
	return s.Limits.Connections != 0 || slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.Upper != 0 })
}

// full says that the backend has as many flows as it may, or had and has not yet
// few enough.
func (m *model) full(s *lb.RoutedService, backend int) bool {
	b := s.Backends[backend]
	load := m.lives[s.BackendKey(b)].load
	if b.Upper == 0 {
		return false
	}
	least := b.Lower
	if least == 0 {
		least = b.Upper
	}
	if load.full {
		load.full = load.active >= least
	} else {
		load.full = load.active >= b.Upper
	}
	if load.full {
		m.met["full"]++
	}
	return load.full
}

// The most members that are looked at for one flow: by lc, and by fo or where the
// one chosen is full.
const window, widerWindow = 32, 64

// pick chooses a member for a new flow by the service's scheduler.
func (m *model) pick(s *lb.RoutedService, hash uint32) (backend int, ok bool) {
	at := m.standings[s.Key()]
	members := takersOf(s)
	bySlot := func(hash uint32) int { return indexOfBackend(s, at.owners[scale(hash, len(at.owners))]) }
	n := int(at.turn)
	at.turn++
	switch s.Scheduler {
	case lb.RoundRobin, lb.WeightedRoundRobin:
		backend = at.sequence[n%len(at.sequence)]
		ok = !m.full(s, backend)
	case lb.LeastConnections, lb.WeightedLeastConnections:
		start := n
		if len(members) > window {
			start = n * window
		}
		backend, ok = m.least(s, members, start, window)
	case lb.TwoChoices:
		r := mix((uint64(hash)<<32 | uint64(uint32(n))) + m.secret)
		backend, ok = m.least(s, []int{bySlot(uint32(r >> 32)), bySlot(uint32(r))}, 0, 2)
	case lb.Failover:
		for i := 0; i < min(len(members), widerWindow) && !ok; i++ {
			backend, ok = members[i], !m.full(s, members[i])
		}
	default:
		// A hash takes no turn.
		at.turn--
		n = int(hash)
		backend = bySlot(hash)
		ok = !m.full(s, backend)
	}
	if ok {
		return backend, true
	}
	m.met["full: another is looked for"]++
	return m.least(s, members, n, widerWindow)
}

// least picks, among so many from start on, the one with the fewest flows for its
// weight that is not full.
func (m *model) least(s *lb.RoutedService, among []int, start, most int) (best int, ok bool) {
	for i := range min(most, len(among)) {
		candidate := among[(start+i)%len(among)]
		if m.full(s, candidate) {
			continue
		}
		if !ok || m.loadOf(s, candidate)*m.share(s, best) < m.loadOf(s, best)*m.share(s, candidate) {
			best, ok = candidate, true
		}
	}
	return best, ok
}

// loadOf is how many flows a backend would have with one more.
func (m *model) loadOf(s *lb.RoutedService, backend int) uint64 {
	load := m.lives[backendKeyOf(s, backend)].load
	return uint64(load.active) + load.penalty + 1
}

func (m *model) share(s *lb.RoutedService, backend int) uint64 {
	return uint64(modelWeight(s, backend))
}

// overRate says that the service has had too many new connections lately. The program has a clock of its own: between
// the times before and after the packet, the model takes its word.
func (m *model) overRate(c *choice, s *lb.RoutedService, seen seen) bool {
	at := m.standings[s.Key()]
	interval := 1_000_000_000 / uint64(s.Limits.Rate)
	burst := interval * uint64(s.Limits.Burst)
	if seen.due == nil {
		return false
	}
	due := seen.due(s.Key())
	if due == at.due {
		if at.due <= seen.from+burst {
			c.complaint = fmt.Sprintf("refused for the rate %d ns after it was due, with a burst of %d ns",
				int64(seen.from-at.due), burst)
		}
		return true
	}
	least, most := max(at.due, seen.from)+interval, max(at.due, seen.until)+interval
	switch {
	case at.due > seen.until+burst:
		c.complaint = fmt.Sprintf("taken %d ns before it was due, with a burst of %d ns", at.due-seen.until, burst)
	case due < least || due > most:
		c.complaint = fmt.Sprintf("the next connection is due at %d, want %d to %d", due, least, most)
	}
	at.due = due
	return false
}
