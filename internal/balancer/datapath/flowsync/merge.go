// SPDX-License-Identifier: Apache-2.0

package flowsync

import (
	"sync/atomic"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Reasons why Merge refuses a flow.
const (
	// RefusedUnproven: it is not proven, or in no state of a proven flow.
	RefusedUnproven = "unproven"
	// RefusedUnknown: there is no such service or backend here, or the client is of another family.
	RefusedUnknown = "unknown_backend"
	// RefusedComputed: the service has no flow entries here: none of its slots has another backend than before.
	RefusedComputed = "computed"
	// RefusedPool: its address and port of full NAT's pool are not in the pool here, or another flow here has them.
	RefusedPool = "pool"
	// RefusedKnown: a flow of this balancer's own has its key, and another backend.
	RefusedKnown = "known"
	// RefusedExpired: it was idle for longer than the timeout of this balancer.
	RefusedExpired = "over"
	// RefusedFull: the table has no room.
	RefusedFull = "full"
)

// Destination is the destination of other balancers' flows: the configuration in use, and its tables.
type Destination struct {
	Register *generation.Register
	// Shared and Memory are nil before the first change: then all flows are refused.
	Shared *sharedmaps.Maps
	Memory *generation.Memory
	// Secret seeds the hash by which flows are placed in their tables.
	Secret uint64
	// BeforeWrite is called before a flow is written: tests send packets there. It may be nil.
	BeforeWrite func()
}

// Merge merges another balancer's proven flows into the table of proven flows, by the endpoints of service and backend:
// those that fit this configuration, under the key by which packets look them up. It never replaces an active flow of
// this balancer's own. No change may be under way; packets do not wait for it.
func Merge(e *Exchange, h Destination, flows []lb.Flow) lb.MergeResult {
	e.mu.Lock()
	defer e.mu.Unlock()
	done := lb.MergeResult{Refused: map[string]int{}}
	refuse := func(flow *lb.Flow, reason string) {
		done.Refused[reason]++
		if e.missed.note(h.Register, flow, reason) {
			done.Missed++
		}
	}
	if h.Memory == nil {
		for i := range flows {
			refuse(&flows[i], RefusedUnknown)
		}
		return done
	}
	e.use(h.Shared.Proven)
	t := e.newMerger(h)
	for i := range flows {
		switch reason, followed := t.merge(&flows[i]); {
		case reason != "":
			refuse(&flows[i], reason)
		case followed:
			done.Known++
		default:
			done.New++
		}
	}
	if done.New > 0 {
		atomic.StoreUint32(&h.Memory.Head().Remembered, 1)
	}
	return done
}

// merger has the state that flows of other balancers are merged with.
type merger struct {
	Destination
	pool     lb.Pool
	numbers  generation.PoolNumbers
	clock    uint32
	timeouts *[256]uint32
	// inheritedUntil is the time of the clock up to which an earlier process saw entries' last packets; anyInherited
	// says that there are such entries.
	inheritedUntil uint32
	anyInherited   bool
	clockGaps      flowtable.ClockGaps
	loads          []objects.XDPBackendLoad
	turns          []objects.XDPTurn
	returns        flowtable.ReplyKeys
	exchange       *Exchange
}

func (e *Exchange) newMerger(h Destination) *merger {
	t := &merger{Destination: h, pool: h.Memory.Pool, numbers: h.Memory.Numbers, timeouts: e.janitor.Timeouts(),
		loads: mapmem.ElementsOf[objects.XDPBackendLoad](h.Shared.Loads.Memory),
		turns: mapmem.ElementsOf[objects.XDPTurn](h.Shared.Turns.Memory), exchange: e}
	t.inheritedUntil, t.anyInherited = e.janitor.Inherited()
	t.clockGaps, t.clock = e.janitor.ClockGaps(), e.janitor.Now()
	if h.Shared.FullNAT == nil {
		return t
	}
	if now := e.published.Load(); e.returnsAt != now {
		e.returns, e.returnsAt = generation.ReplyKeysOf(h.Register.Records, t.numbers, h.Secret), now
	}
	t.returns = e.returns
	return t
}

// provenStates are the states of proven flows, by their names.
var provenStates = map[lb.FlowState]objects.XDPFlowState{
	lb.FlowEstablished: objects.XDPFlowStateFLOW_ESTABLISHED,
	// The pending connection is known to the other balancer only.
	lb.FlowContested:  objects.XDPFlowStateFLOW_ESTABLISHED,
	lb.FlowUDP:        objects.XDPFlowStateFLOW_UDP,
	lb.FlowClientFIN:  objects.XDPFlowStateFLOW_CLIENT_FIN,
	lb.FlowBackendFIN: objects.XDPFlowStateFLOW_BACKEND_FIN,
	lb.FlowClosed:     objects.XDPFlowStateFLOW_CLOSED,
	lb.FlowTimeWait:   objects.XDPFlowStateFLOW_TIME_WAIT,
}

// incoming is the entry that another balancer's flow gets here.
type incoming struct {
	flow   objects.XDPFlow
	state  objects.XDPFlowState
	seen   uint32
	record *generation.Record
}

// merge merges a flow, or returns the reason why it is refused; followed says that the flow was known.
func (t *merger) merge(one *lb.Flow) (refused string, followed bool) {
	in, refused := t.translate(one)
	if refused != "" {
		return refused, false
	}
	if place, found := t.Shared.Proven.Find(&in.flow); found {
		return t.mergeKnown(place, &in)
	}
	if place, found := t.Shared.Unproven.Find(&in.flow); found && !t.evictFor(place, &in) {
		return RefusedKnown, false
	}
	if !flowtable.IsLive(in.state) {
		return RefusedExpired, false
	}
	if !t.canMapReplies(&in, flowtable.Place{}) {
		return RefusedPool, false
	}
	if t.BeforeWrite != nil {
		t.BeforeWrite()
	}
	if !t.Shared.Proven.Insert(in.flow, in.state, in.seen) {
		return RefusedFull, false
	}
	t.count(&in, 1)
	t.complete(&in)
	return "", false
}

// evictFor evicts the flow in a place of the table of unproven flows, if it has ended; and for a live flow that was
// proven elsewhere, if it is the same flow or an older one: its SYN came here, was retransmitted, and was answered by
// another balancer's backend. A flow that has begun here since stays.
func (t *merger) evictFor(place flowtable.Place, in *incoming) bool {
	inPlace := place.Flow()
	gives := t.canReplace(place, &inPlace, in)
	return t.evict(t.Shared.Unproven, place, place.Tag(), in, func(existing *objects.XDPFlow,
		state objects.XDPFlowState) bool {
		switch {
		case !flowtable.IsLive(state):
			// It only occupies a place that the client's next connection needs.
			return true
		case !flowtable.IsLive(in.state), state != objects.XDPFlowStateFLOW_OPENING &&
			state != objects.XDPFlowStateFLOW_SEEN && state != objects.XDPFlowStateFLOW_FIRST:
			return false // proven here, without room in the table of proven flows
		}
		same := in.record.Service.Mode != lb.FullNAT && existing.Backend == in.flow.Backend &&
			existing.Generation == in.flow.Generation
		sent := in.record.Service.Mode != lb.FullNAT && flowtable.SynOf(existing) != 0 &&
			flowtable.SynOf(existing) == flowtable.SynOf(&in.flow)
		// Where a sequence number is missing, a flow that has begun here since may look older than the incoming one.
		return same || sent || gives || t.seenLaterBy(place, in) > 0 && !haveSYNs(existing, in)
	})
}

// evict releases the flow in a place if the incoming one may replace it, and reports whether it was released.
func (t *merger) evict(table *flowtable.Table, place flowtable.Place, tag uint64, in *incoming,
	may func(existing *objects.XDPFlow, state objects.XDPFlowState) bool) bool {
	existing, state, released := table.Release(place, tag, func(existing *objects.XDPFlow, state objects.XDPFlowState,
		_ uint32) bool {
		return may(existing, state)
	})
	if released && flowtable.IsLive(state) {
		t.count(&incoming{flow: existing, record: in.record}, -1)
	}
	return released
}

// translate returns the entry of a flow, or the reason why it is refused.
func (t *merger) translate(one *lb.Flow) (in incoming, refused string) {
	var proven bool
	if in.state, proven = provenStates[one.State]; !proven || !one.Proven {
		return in, RefusedUnproven
	}
	in.record = t.Register.ByKey[one.Backend.Service]
	place, known := t.Register.Places.Backends[one.Backend]
	if in.record == nil || !known || !one.Client.IsValid() ||
		one.Client.Addr().Is4() != one.Backend.Service.VIP.Is4() || one.Backend.Service.Hairpin ||
		(in.state == objects.XDPFlowStateFLOW_UDP) != (one.Backend.Service.Protocol == lb.UDP) {
		return in, RefusedUnknown
	}
	if !in.record.LooksUpFlows() {
		return in, RefusedComputed
	}
	idle := min(max(one.Silent, 0), flowtable.MaxTimeout)
	if flowtable.Milliseconds(idle) >= t.timeouts[uint8(in.state)] {
		return in, RefusedExpired
	}
	in.seen = t.clockGaps.Ago(t.clock, idle)
	in.flow = objects.XDPFlow{Address: mapmem.OfAddress(one.Client.Addr()),
		Port: mapmem.NetworkOrder(one.Client.Port()), Service: in.record.ID,
		Backend: place.Index, Generation: place.Generation}
	if in.record.Service.Mode != lb.FullNAT {
		flowtable.PutSYN(&in.flow, one.SYN)
		return in, ""
	}
	number, pooled := t.numbers.Number(one.Source.Addr())
	if !pooled || one.Source.Addr().Is4() != one.Backend.Service.VIP.Is4() || one.Source.Port() < t.pool.FirstPort ||
		one.Source.Port() > t.pool.LastPort {
		return in, RefusedPool
	}
	in.flow.Source.Port, in.flow.Source.Address = mapmem.NetworkOrder(one.Source.Port()), number
	return in, ""
}

// mergeKnown merges a flow where an entry with its key exists.
func (t *merger) mergeKnown(place flowtable.Place, in *incoming) (refused string, followed bool) {
	existing, state := place.Flow(), place.State()
	same := existing.Backend == in.flow.Backend && existing.Generation == in.flow.Generation
	if in.record.Service.Mode == lb.FullNAT {
		same = same && existing.Source == in.flow.Source
	}
	switch {
	case same && flowtable.IsLive(state):
		t.update(place, &existing, in)
		return "", true
	case flowtable.IsLive(state):
		return t.replaceOther(place, &existing, in)
	case !flowtable.IsLive(in.state):
		t.mergeEnded(place, &existing, in, same)
		return "", true
	case t.hasEnded(&existing, place, in, same):
		return RefusedKnown, false
	}
	if !t.canMapReplies(in, place) || !place.Replace(&in.flow, in.state, in.seen) {
		return RefusedPool, false
	}
	t.count(in, 1)
	t.complete(in)
	return "", false
}

// update merges a flow that is known here, or whose client has its next connection to the same backend. The end of the
// previous connection does not end the next one.
func (t *merger) update(place flowtable.Place, existing *objects.XDPFlow, in *incoming) {
	state, later, other := place.State(), t.seenLaterBy(place, in), isOther(existing, in)
	if other && later <= 0 || !flowtable.IsLive(in.state) && later < 0 && !haveSYNs(existing, in) {
		return
	}
	changed := other && flowtable.IsLive(in.state) && place.Replace(&in.flow, state, in.seen)
	if int32(in.seen-place.Seen()) > 0 {
		atomic.StoreUint32(&place.Bucket.Seen[place.At], in.seen)
		changed = true
	}
	// An end is counted once, whichever balancer saw it.
	if !flowtable.IsLive(in.state) && place.SetState(state, in.state) {
		t.count(in, -1)
		changed = true
	}
	if changed {
		t.mark(place)
	}
}

// haveSYNs reports whether the SYNs of both flows are known.
func haveSYNs(existing *objects.XDPFlow, in *incoming) bool {
	return in.record.Service.Mode != lb.FullNAT && flowtable.SynOf(existing) != 0 && flowtable.SynOf(&in.flow) != 0
}

// isOther reports whether two flows of a client's port to one backend are certainly two connections: their SYNs differ.
func isOther(existing *objects.XDPFlow, in *incoming) bool {
	return haveSYNs(existing, in) && flowtable.SynOf(existing) != flowtable.SynOf(&in.flow)
}

// hasEnded reports whether an incoming live flow has ended here, or is older than the flow that has: a connection is
// identified by its SYN, and of two connections the one that was seen later is the later one. Where the times are
// close, the SYNs decide: packets of the later connection may have reached the ended entry here before the notification
// of that connection.
func (t *merger) hasEnded(existing *objects.XDPFlow, place flowtable.Place, in *incoming, same bool) bool {
	later := t.seenLaterBy(place, in)
	if same && haveSYNs(existing, in) && !isOther(existing, in) {
		return true
	}
	if haveSYNs(existing, in) && later > -MinLateness.Milliseconds() {
		return int32(flowtable.SynOf(&in.flow)-flowtable.SynOf(existing)) < 0 && later <= 0
	}
	return later <= 0
}

// replaceOther merges a flow where another live flow has its key. If that one is replaced, its connection is over, and
// the client has another one.
func (t *merger) replaceOther(place flowtable.Place, existing *objects.XDPFlow, in *incoming) (
	refused string, followed bool,
) {
	state := place.State()
	if !flowtable.IsLive(in.state) {
		t.endEarlier(place, existing, in)
		return RefusedKnown, false
	}
	if !t.canReplace(place, existing, in) || !t.canMapReplies(in, place) ||
		!place.Replace(&in.flow, in.state, in.seen) {
		return RefusedKnown, false
	}
	if flowtable.IsLive(state) {
		t.count(&incoming{flow: *existing, record: in.record}, -1)
	}
	t.count(in, 1)
	t.complete(in)
	return "", false
}

// endEarlier ends the flow in a place where a later connection of its client's port has ended elsewhere: the earlier
// one has ended, too. Otherwise other members' copies of that later connection, sent before they knew its end, would
// replace it here, and full NAT would take the client's next connection for that one, and notify others of a connection
// that they know to have ended. For a flow from before this balancer's process ended, the later connection must be
// later than that moment: flows that begin just then are sent to no other member.
func (t *merger) endEarlier(place flowtable.Place, existing *objects.XDPFlow, in *incoming) {
	state := place.State()
	switch {
	case state == objects.XDPFlowStateFLOW_OPENING, t.seenLaterBy(place, in) <= 0, !t.canReplace(place, existing, in):
		return
	case t.isInherited(place) && int32(in.seen-t.inheritedUntil) <= 0, !place.SetState(state,
		objects.XDPFlowStateFLOW_CLOSED):
		return
	}
	atomic.StoreUint32(&place.Bucket.Seen[place.At], in.seen)
	t.count(&incoming{flow: *existing, record: in.record}, -1)
	t.mark(place)
}

// mergeEnded merges an ended flow where the one in the place has ended, too: the same connection, or another one of its
// client's port. The later end stays, so that copies from before that end are recognised as ended. Full NAT keeps the
// entry's port of its own pool, and the return entry that leads to it.
func (t *merger) mergeEnded(place flowtable.Place, existing *objects.XDPFlow, in *incoming, same bool) {
	later := t.seenLaterBy(place, in)
	one := same && !isOther(existing, in)
	switch {
	case one && (later >= 0 || haveSYNs(existing, in)):
		advanceEnd(place, place.State(), in)
	case later <= 0:
		return
	case !one && in.record.Service.Mode != lb.FullNAT && !place.Replace(&in.flow, in.state, in.seen):
		return
	}
	if later > 0 {
		atomic.StoreUint32(&place.Bucket.Seen[place.At], in.seen)
	}
	t.mark(place)
}

// seenLaterBy returns by how many milliseconds the incoming flow was seen later than the one in a place, by this
// balancer's clock.
func (t *merger) seenLaterBy(place flowtable.Place, in *incoming) int64 {
	return int64(int32(in.seen - place.Seen()))
}

// MinLateness is by how much later another balancer's flow must have been seen than one of this balancer's own.
// Messages arrive with a delay, by which their flows seem to have been seen later; the delay is shorter than
// MinLateness unless a message waited behind many others.
const MinLateness = 2 * time.Second

// canReplace reports whether the flow in a place may be replaced by another connection of its client, by the rule that
// the packets of a client's port go to one balancer at a time, so that the connection which was seen last is the one
// that is alive. Four kinds are replaced by any flow that was seen later: a flow whose backend was removed; a flow that
// full NAT has opened again in the entry of an ended one, and that the client has not answered; a copy from another
// balancer that has not received a packet here; and a flow that this balancer knew before its process ended, or
// stalled, and has not seen since: its packets went to other members, and no member has sent the connection's end to
// this one. The incoming flow must be later even so: a flow that begins just before a process ends is sent to no
// member, and the others send the connection before it to the next process. Any other flow must have been seen earlier
// by MinLateness, so that a late message does not replace a connection that has begun here since. Within that time the
// sequence numbers of the SYNs decide, which a host selects in ascending order (RFC 9293, section 3.4.1); full NAT has
// none.
func (t *merger) canReplace(place flowtable.Place, existing *objects.XDPFlow, in *incoming) bool {
	later := t.seenLaterBy(place, in)
	switch {
	case !t.backendServes(existing):
		return true
	case later <= 0:
		return false
	case t.isInherited(place), t.isCopy(place), place.State() == objects.XDPFlowStateFLOW_OPENING &&
		in.record.Service.Mode == lb.FullNAT, later >= MinLateness.Milliseconds():
		return true
	case in.record.Service.Mode != lb.FullNAT && flowtable.SynOf(existing) == 0 && flowtable.SynOf(&in.flow) != 0:
		// A flow that was first seen in midstream had begun before the transition, and one with a SYN has begun since.
		return true
	}
	return haveSYNs(existing, in) && int32(flowtable.SynOf(&in.flow)-flowtable.SynOf(existing)) > 0
}

// isInherited reports whether the flow in a place is from before this balancer's process ended, or stalled, and was not
// seen since, here or by others.
func (t *merger) isInherited(place flowtable.Place) bool {
	return t.anyInherited && int32(place.Seen()-t.inheritedUntil) <= 0 && !t.isCopy(place)
}

// backendServes reports whether the backend of a flow is still configured.
func (t *merger) backendServes(flow *objects.XDPFlow) bool {
	all := t.Register.FlowBackends
	return int(flow.Backend) < len(all) && all[flow.Backend].Generation == flow.Generation
}

// advanceEnd moves a flow of which one FIN was seen here to the other balancer's state: both must expire it at the same
// time, or full NAT would refuse the next flow that has its port.
func advanceEnd(place flowtable.Place, state objects.XDPFlowState, in *incoming) {
	next := in.state
	if isHalfEnded(state) && isHalfEnded(next) && state != next {
		// one balancer has seen the client's FIN, and the other one the backend's
		next = objects.XDPFlowStateFLOW_TIME_WAIT
	}
	if isHalfEnded(state) && !isHalfEnded(next) {
		place.SetState(state, next)
	}
}

// isHalfEnded reports whether one end has closed the connection, and the other one has not.
func isHalfEnded(state objects.XDPFlowState) bool {
	return state == objects.XDPFlowStateFLOW_CLIENT_FIN || state == objects.XDPFlowStateFLOW_BACKEND_FIN
}

// canMapReplies reports whether replies to the flow will find it, once it is in own, the place of its key, if there is
// one: no other flow here has the 5-tuple of its replies. It evicts flows with that 5-tuple that have ended and, where
// the incoming one was seen later, copies from another balancer that have not received a packet here, and flows from
// before this balancer's process ended that were not seen since: the balancer that assigned the port has expired such a
// flow. A flow that was seen later than the incoming one keeps the port.
func (t *merger) canMapReplies(in *incoming, own flowtable.Place) bool {
	hash, ok := t.returns.Hash(&in.flow)
	if !ok {
		return in.record.Service.Mode != lb.FullNAT
	}
	return t.Shared.FullNAT.PlacesOf(hash, func(number uint32) bool { return t.evictReturn(number, hash, own, in) })
}

// evictReturn evicts the flow in a place if replies to it have that hash, and reports whether no flow there has them
// afterwards.
func (t *merger) evictReturn(number uint32, hash uint64, own flowtable.Place, in *incoming) bool {
	table := t.Shared.Unproven
	if number&flowtable.ReturnProven != 0 {
		table = t.Shared.Proven
	}
	place, ok := table.At(number &^ flowtable.ReturnProven)
	if !ok || place == own {
		return true
	}
	tag := place.Tag()
	if tag <= flowtable.BusyTag || place.State() == objects.XDPFlowStateFLOW_FREE {
		return true
	}
	flow := place.Flow()
	if existing, ok := t.returns.Hash(&flow); !ok || existing != hash {
		return true
	}
	yields := (t.isInherited(place) || t.isCopy(place)) && t.seenLaterBy(place, in) > 0
	return t.evict(table, place, tag, in, func(_ *objects.XDPFlow,
		state objects.XDPFlowState) bool {
		return yields || !flowtable.IsLive(state)
	})
}

// complete completes a flow that was written: it creates the return entry for its replies, and marks it so that it is
// not sent back.
func (t *merger) complete(in *incoming) {
	place, found := t.Shared.Proven.Find(&in.flow)
	if !found {
		return
	}
	if hash, ok := t.returns.Hash(&in.flow); ok {
		t.Shared.FullNAT.Put(hash, t.Shared.Proven.Number(place)|flowtable.ReturnProven,
			uint32(t.Shared.Proven.HashKey(&in.flow)))
		t.reclaimPort(in, hash)
	}
	t.mark(place)
}

// reclaimPort evicts new flows that were assigned the incoming flow's port since canMapReplies has checked: from now on
// the return entry prevents that (try_port() of bpf/balancer/flow/poolport.h looks up entries once more after it has
// created its own, as this function does). Their clients retransmit the SYN, and get another port.
func (t *merger) reclaimPort(in *incoming, hash uint64) {
	t.Shared.FullNAT.PlacesOf(hash, func(number uint32) bool {
		t.evictUnproven(number, hash, in)
		return true
	})
}

// evictUnproven evicts the flow in a place if it is unproven, and replies to it have that hash.
func (t *merger) evictUnproven(number uint32, hash uint64, in *incoming) {
	place, ok := t.Shared.Unproven.At(number)
	if number&flowtable.ReturnProven != 0 || !ok {
		return
	}
	t.evict(t.Shared.Unproven, place, place.Tag(), in, func(flow *objects.XDPFlow, state objects.XDPFlowState) bool {
		existing, ok := t.returns.Hash(flow)
		return ok && existing == hash && (state == objects.XDPFlowStateFLOW_OPENING ||
			state == objects.XDPFlowStateFLOW_FIRST)
	})
}

// mark notes that the flow in a place came from another balancer, and is not to be sent.
func (t *merger) mark(place flowtable.Place) {
	flow := place.Flow()
	t.exchange.marks[t.Shared.Proven.Number(place)-1] = markMergedAs(markOf(&flow, place.State(), place.Seen(),
		t.timeouts), place.Seen())
}

// isCopy reports whether the flow in a place came from another balancer and has neither changed nor been seen since.
func (t *merger) isCopy(place flowtable.Place) bool {
	if number := t.Shared.Proven.Number(place); int(number) <= len(t.exchange.marks) && t.isProven(place) {
		flow := place.Flow()
		return t.exchange.marks[number-1] == markMergedAs(markOf(&flow, place.State(), place.Seen(), t.timeouts),
			place.Seen())
	}
	return false
}

// isProven reports whether a place is in the table of proven flows.
func (t *merger) isProven(place flowtable.Place) bool {
	to, ok := t.Shared.Proven.At(t.Shared.Proven.Number(place))
	return ok && to == place
}

// count adds to the active flows of a flow's backend and service, where they are counted.
func (t *merger) count(in *incoming, by int32) {
	if !in.record.Remembers {
		return
	}
	atomic.AddUint32(&t.loads[in.flow.Backend].Active, uint32(by))
	atomic.AddUint32(&t.turns[in.flow.Service].Active, uint32(by))
}
