// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The entries of program and model, side by side.

// testTimeouts differ, so that each is told from the others.
var testTimeouts = lb.Timeouts{Opening: 30 * time.Second, First: 20 * time.Second, Established: 30 * time.Minute,
	UDP: 2 * time.Minute, Fin: 4 * time.Minute, Closed: time.Minute}

// advance lets time pass for program and model; the janitor walks all tables then.
func (r *rig) advance(tb testing.TB, d time.Duration) {
	tb.Helper()
	r.model.now = r.model.now.Add(d)
	seconds := int((r.model.passed+d)/time.Second - r.model.passed/time.Second)
	r.model.clock += uint32(d.Milliseconds())
	r.model.passed += d
	r.model.endTransitions()
	for range seconds {
		r.model.decayPenalties()
	}
	r.model.sweep()
	r.model.endUnrememberedWindows()
	r.datapath.janitor.Advance(d)
	r.datapath.endTransitions(r.model.now, r.datapath.janitor.FlowsOf())
}

// compareTouched compares the buckets that the model has changed, and the loads of its services and backends.
func (r *rig) compareTouched(tb testing.TB) string {
	tb.Helper()
	var problem strings.Builder
	for i, table := range []*modelFlows{r.model.flows, r.model.newcomers} {
		program := r.buckets(i)
		for bucket := range table.touched {
			problem.WriteString(r.compareBucket(i, bucket, &program[bucket], &table.buckets[bucket]))
		}
		clear(table.touched)
	}
	return problem.String()
}

// compareAll compares all entries.
func (r *rig) compareAll(tb testing.TB) string {
	tb.Helper()
	var problem strings.Builder
	for i, table := range []*modelFlows{r.model.flows, r.model.newcomers} {
		program := r.buckets(i)
		if len(program) != len(table.buckets) {
			return fmt.Sprintf("%s: %d buckets, want %d\n", tableNames[i], len(program), len(table.buckets))
		}
		for bucket := range table.buckets {
			problem.WriteString(r.compareBucket(i, uint32(bucket), &program[bucket], &table.buckets[bucket]))
		}
	}
	for key, at := range r.model.standings {
		problem.WriteString(r.compareTurn(key, at))
		problem.WriteString(r.compareTransition(key, at))
	}
	for key, life := range r.model.lives {
		problem.WriteString(r.compareLoad(key, life.load))
	}
	if n := r.datapath.janitor.Drift.Corrected; n != 0 {
		fmt.Fprintf(&problem, "the janitor has corrected %d counts\n", n)
	}
	return problem.String()
}

var tableNames = []string{"flows", "newcomers"}

// compareBucket returns the difference between a bucket and the model's.
func (r *rig) compareBucket(table int, number uint32, got *objects.XDPFlowBucket, want *modelBucket) string {
	if got.Tags == [2]uint64{} && got.Elsewhere == want.elsewhere && want.places == (modelBucket{}).places {
		return "" // as most are
	}
	var problem strings.Builder
	for place, e := range want.places {
		if is, should := r.describe(got, place), r.model.describe(e); !is.same(should) {
			fmt.Fprintf(&problem, "%s, bucket %d, place %d: %v, want %v (%s)\n", tableNames[table], number, place, is,
				should, r.model.nameOf(e))
		}
	}
	if got.Elsewhere != want.elsewhere {
		fmt.Fprintf(&problem, "%s, bucket %d: of flows in their other bucket it says %#x, want %#x\n",
			tableNames[table], number, got.Elsewhere, want.elsewhere)
	}
	return problem.String()
}

// placeContents is the entry in one place of a table.
type placeContents struct {
	tag     uint16
	state   flowState
	seen    uint32
	address [4]uint32
	port    uint16
	service uint32
	// backend is zero where the flow's has left.
	backend lb.BackendKey
	pool    netip.AddrPort
	// host is the number by which a group's affinity knows a host's address.
	host uint64
	isn  uint32
}

func (p placeContents) String() string {
	if p.tag == 0 {
		return "nothing"
	}
	to := "one that left"
	if p.backend.Address.IsValid() {
		to = netip.AddrPortFrom(p.backend.Address, p.backend.Port).String()
	}
	return fmt.Sprintf("tag %d, %08x port %d of service %#x to %s from %s, opened with %d, state %d, seen at %d", p.tag,
		p.address, p.port, p.service, to, p.pool, p.isn, p.state, p.seen)
}

func (p placeContents) same(o placeContents) bool { return p == o || p.tag == 0 && o.tag == 0 }

// describe reads a place of the program's table.
func (r *rig) describe(b *objects.XDPFlowBucket, place int) placeContents {
	flow := &b.Flows[place]
	contents := placeContents{tag: uint16(b.Tags[place/4] >> (place % 4 * 16))}
	if contents.tag == 0 {
		return contents
	}
	contents = placeContents{tag: contents.tag, state: flowState(b.States >> (place * 8)), seen: b.Seen[place],
		address: flow.Address, port: mapmem.NetworkOrder(flow.Port), service: flow.Service}
	if flow.Service&flowtable.GroupKey != 0 {
		contents.host = uint64(flow.Backend) | uint64(flow.Generation)<<32
		return contents
	}
	if key, there := r.owners[ownerPlace(flow)]; there {
		contents.backend = key
		if s := r.model.services[key.Service]; s != nil && s.Mode == lb.FullNAT {
			contents.pool = r.poolIn(flow, key)
		} else {
			contents.isn = bits.ReverseBytes32(uint32(flow.Source.Port) | uint32(flow.Source.Address)<<16)
		}
	}
	return contents
}

// ownerPlace is the place of the backend that a flow is at.
func ownerPlace(flow *objects.XDPFlow) generation.Place {
	return generation.Place{Index: flow.Backend, Generation: flow.Generation}
}

// learnOwners notes who has which place.
func (r *rig) learnOwners() {
	r.owners = map[generation.Place]lb.BackendKey{}
	for key, at := range r.datapath.register.Places.Backends {
		r.owners[at] = key
	}
}

// learnDues notes the services whose next connection a change between two times has brought forward. It is due no later
// than after a burst of the new limits.
func (r *rig) learnDues(tb testing.TB, from, until uint64) {
	tb.Helper()
	for i := range r.model.state.Services {
		s := &r.model.state.Services[i]
		at, due := r.model.standings[s.Key()], r.dueOf(s.Key())
		if s.Limits.Rate == 0 || due == at.due {
			continue
		}
		ahead := (uint64(s.Limits.Burst) + 1) * (1_000_000_000 / uint64(s.Limits.Rate))
		if due < from+ahead || due > min(until+ahead, at.due) {
			tb.Errorf("%s: %s: a connection that was due at %d is due at %d, changed from %d to %d, with a burst of %d ns",
				r.hook, s.Key(), at.due, due, from, until, ahead)
		}
		at.due = due
	}
}

// poolOf reads the pool's address and port that the program has for a new flow.
func (r *rig) poolOf(e *remembered) netip.AddrPort {
	table := slices.Index([]*modelFlows{r.model.flows, r.model.newcomers}, e.at)
	place := slices.Index(e.at.buckets[e.bucket].places[:], e)
	return r.poolIn(&r.buckets(table)[e.bucket].Flows[place], e.backend)
}

// poolIn reads it from an entry, zero where there is none.
func (r *rig) poolIn(flow *objects.XDPFlow, backend lb.BackendKey) netip.AddrPort {
	pool := ofFamily(r.model.state.Pool.All(), backend.Service.VIP)
	if int(flow.Source.Address) >= len(pool) || flow.Source.Port == 0 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(pool[flow.Source.Address], mapmem.NetworkOrder(flow.Source.Port))
}

// describe returns the contents that a place should have.
func (m *model) describe(e *remembered) (contents placeContents) {
	if e == nil {
		return contents
	}
	contents = placeContents{tag: e.tag(m.secret), state: e.state, seen: e.seen, address: mapmem.OfAddress(e.client),
		port: e.port, service: e.service}
	if e.affinity {
		contents.service |= 1 << 31
	}
	if e.group {
		contents.service |= 1 << 30
		contents.host = hostOf(e.host)
		return contents
	}
	if m.valid(e) {
		contents.backend, contents.pool, contents.isn = e.backend, e.pool, e.isn
	}
	return contents
}

// hostOf is the number by which a group's affinity knows a host: an IPv4 address as its bytes are in a packet, or 47
// bits of a hash of an IPv6 one, above which the 48th is set.
func hostOf(a netip.Addr) uint64 {
	b := a.AsSlice()
	if a.Is4() {
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return mix(binary.LittleEndian.Uint64(b)*multiplier+binary.LittleEndian.Uint64(b[8:])*multiplier2)>>17 | 1<<47
}

// nameOf describes an entry to a person.
func (m *model) nameOf(e *remembered) string {
	if e == nil {
		return "free"
	}
	for key, at := range m.standings {
		if at.id == e.service {
			return fmt.Sprintf("%v port %d of %s by %s", e.client, e.port, key, m.services[key].Scheduler)
		}
	}
	return "of a service that has left"
}

// compareTurn returns the difference in the turn of a service.
func (r *rig) compareTurn(key lb.ServiceKey, at *serviceState) string {
	turn := r.turnOf(key)
	if turn.Next != at.turn || turn.Active != at.active || turn.Due != at.due || turn.Unremembered != at.unremembered ||
		turn.CameBack != at.cameBack {
		return fmt.Sprintf(
			"%s: turn %d, %d active, next due at %d, unremembered at %d, came back at %d; want turn %d, %d active, next due at %d, unremembered at %d, came back at %d\n",
			key, turn.Next, turn.Active, turn.Due, turn.Unremembered, turn.CameBack, at.turn, at.active, at.due,
			at.unremembered, at.cameBack)
	}
	return ""
}

// compareTransition returns the difference in the state of a transition.
func (r *rig) compareTransition(key lb.ServiceKey, at *serviceState) string {
	view := &r.datapath.register.ByKey[key].View
	if (view.Base != nil) != (at.base != nil) || at.base != nil && !view.Until.Equal(at.until) {
		return fmt.Sprintf("%s (%s): a base: %v, until %v, %d slots; want %v, until %v, %d slots\n", key, at.recipe,
			view.Base != nil, view.Until, len(view.Table.Slots), at.base != nil, at.until, len(at.owners))
	}
	if view.Base != nil && len(view.Base.Slots) != len(at.base) {
		return fmt.Sprintf("%s: a base of %d slots, want %d\n", key, len(view.Base.Slots), len(at.base))
	}
	for slot, owner := range at.base {
		if got := view.Base.Owners[view.Base.Slots[slot]]; got != netip.AddrPortFrom(owner.Address, owner.Port) {
			return fmt.Sprintf("%s: slot %d of the base is %s's, want %s's\n", key, slot, got, owner.Address)
		}
	}
	return ""
}

// compareLoad returns the difference in the load of a backend.
func (r *rig) compareLoad(key lb.BackendKey, want *modelLoad) string {
	load := r.loadOf(key)
	if load.Active != want.active || (load.Full != 0) != want.full || uint64(load.Penalty) != want.penalty {
		return fmt.Sprintf("%s, %s: %d active, full: %v, a penalty of %d; want %d, full: %v, a penalty of %d\n",
			key.Service, key.Address,
			load.Active, load.Full != 0, load.Penalty, want.active, want.full, want.penalty)
	}
	return ""
}

// dueOf is when the service's next connection is due.
func (r *rig) dueOf(key lb.ServiceKey) uint64 { return r.turnOf(key).Due }

// programInputs gives the model the values that follow from no rule.
func (r *rig) programInputs() programInputs {
	return programInputs{
		secret:       r.datapath.secret,
		serviceID:    func(key lb.ServiceKey) uint32 { return r.datapath.register.Places.Services[key] },
		groupID:      func(name string) uint32 { return r.datapath.register.Places.Groups[name].ID },
		backendIndex: func(key lb.BackendKey) uint32 { return r.datapath.register.Places.Backends[key].Index },
		sequenceOf:   r.sequenceOf,
		marks:        r.marks,
	}
}

// marks reports whether the slot of a hash is marked as one that has changed hands.
func (r *rig) marks(key lb.ServiceKey, hash uint32) bool {
	moved := r.datapath.register.ByKey[key].View.Moved
	return !moved.Empty() && moved.Has(int(scale(hash, int(moved.Size))))
}

// sequenceOf is the program's sequence of wrr.
func (r *rig) sequenceOf(key lb.ServiceKey) (sequence []int) {
	record := r.datapath.register.ByKey[key]
	s := &record.Service
	takers := takersOf(s)
	for _, member := range record.View.Table.Sequence {
		sequence = append(sequence, takers[member])
	}
	return sequence
}

// turnOf and loadOf read the state of schedulers and limits.
func (r *rig) turnOf(key lb.ServiceKey) objects.XDPTurn {
	row := r.datapath.shared.Turn(r.datapath.register.Places.Services[key])
	return *(*objects.XDPTurn)(unsafe.Pointer(unsafe.SliceData(row)))
}

func (r *rig) loadOf(key lb.BackendKey) objects.XDPBackendLoad {
	row := r.datapath.shared.Load(r.datapath.register.Places.Backends[key].Index)
	return *(*objects.XDPBackendLoad)(unsafe.Pointer(unsafe.SliceData(row)))
}

// buckets are those of the program's table of proven flows, 0, or of newcomers, 1.
func (r *rig) buckets(table int) []objects.XDPFlowBucket {
	return []*flowtable.Table{r.datapath.shared.Proven, r.datapath.shared.Unproven}[table].Buckets
}
