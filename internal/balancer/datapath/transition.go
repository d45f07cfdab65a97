// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// windowOf returns how long after the last change of a service's backends packets of flows that
// are not remembered are sent where they went before.
func windowOf(s *lb.RoutedService) time.Duration {
	switch {
	case s.Transition.Window > 0:
		return s.Transition.Window
	case s.Protocol == lb.UDP:
		return lb.DefaultUDPWindow
	}
	return lb.DefaultTCPWindow
}

// view is the tables of a service that packets see: the one that new flows go by and,
// during a transition, the one that was in use before. It is not changed; each change
// makes another.
type view struct {
	table *table
	// moved says which slots of the table have changed hands, or may have flows that
	// are remembered because they have; nil: none.
	moved *slotSet
	// base is the table as it was before the first change of the transition.
	base *table
	// last is the last table that had members, where this one has none.
	last *table
	// since is when the transition began, and until when it ends unless there is
	// another change.
	since, until time.Time
	// quiet counts the rounds of the janitor in which it has found no flow of the
	// service since the transition ended.
	quiet int
}

// slotSet is a set of slots of a table of some size.
type slotSet struct {
	size  uint32
	count int
	bits  []uint64
}

// recount counts the slots.
func (s *slotSet) recount() {
	s.count = 0
	for _, word := range s.bits {
		s.count += bits.OnesCount64(word)
	}
}

func (s *slotSet) has(slot int) bool { return s != nil && s.bits[slot/64]>>(slot%64)&1 != 0 }

// each calls do for each slot in it.
func (s *slotSet) each(do func(slot int)) {
	if s.empty() {
		return
	}
	for at, word := range s.bits {
		for ; word != 0; word &= word - 1 {
			do(at*64 + bits.TrailingZeros64(word))
		}
	}
}

// empty says whether there is no slot in it.
func (s *slotSet) empty() bool { return s == nil || s.count == 0 }

// allSlots returns the set of all slots.
func allSlots(size uint32) *slotSet {
	s := &slotSet{size: size, count: int(size), bits: make([]uint64, (size+63)/64)}
	for slot := range size {
		s.bits[slot/64] |= 1 << (slot % 64)
	}
	return s
}

// upheaval says what a change does beyond the table.
type upheaval struct {
	// lookUp: flows of any slot may be remembered.
	lookUp bool
	// rehash: the slots of before mean nothing any more.
	rehash bool
}

// with returns the view after a change to another table.
func (v view) with(next *table, now time.Time, window time.Duration, u upheaval) view {
	if v.table == nil {
		return view{table: next}
	}
	before := v.table
	if len(before.slots) == 0 {
		before = v.last
	}
	after := view{table: next, moved: v.moved, base: v.base, since: v.since, until: v.until, quiet: v.quiet}
	if len(next.slots) == 0 {
		after.last = before
	}
	if u.rehash {
		after.base, after.last = nil, nil
		u.lookUp = u.lookUp || !v.moved.empty()
	} else if next != v.table && before != nil {
		after.change(before, now, window)
	}
	if u.lookUp {
		if !v.inTransition() && after.base == nil {
			after.since = now
		}
		after.moved, after.quiet = allSlots(slotsOf(next, before)), 0
	}
	if len(next.slots) > 0 {
		after.moved = after.moved.onto(next)
	}
	return after
}

// slotsOf returns how many slots a table has; of one without members, for the time when it has
// some again, as many as the one before, and one where there was none: flows that are remembered
// must be looked up meanwhile, too.
func slotsOf(t, before *table) uint32 {
	switch {
	case len(t.slots) > 0:
		return uint32(len(t.slots))
	case before != nil:
		return uint32(len(before.slots))
	}
	return 1
}

// change begins a transition from the table of before, or goes on with the one that
// there is.
func (v *view) change(before *table, now time.Time, window time.Duration) {
	base := v.base
	if base == nil {
		base = before
	}
	if len(v.table.slots) == 0 {
		v.begin(base, now, window)
		return
	}
	moved := differing(base, v.table)
	if moved.empty() && v.base == nil {
		// The same slots to the same backends.
		return
	}
	v.moved = moved.and(v.moved)
	v.begin(base, now, window)
}

// begin notes that a transition is under way.
func (v *view) begin(base *table, now time.Time, window time.Duration) {
	if v.base == nil {
		v.base, v.since = base, now
	}
	v.until, v.quiet = now.Add(window), 0
}

// onto returns the set for another table: the same, if that has the same size. One of
// no slot is nil.
func (s *slotSet) onto(t *table) *slotSet {
	if s.empty() {
		return nil
	}
	if int(s.size) == len(t.slots) {
		return s
	}
	return allSlots(uint32(len(t.slots)))
}

// and returns the slots of both sets. Of one of another size it is unknown which slots
// they are now: they could be any.
func (s *slotSet) and(o *slotSet) *slotSet {
	switch {
	case o.empty():
		return s
	case o.size != s.size:
		return allSlots(s.size)
	}
	both := &slotSet{size: s.size, bits: slices.Clone(s.bits)}
	for i := range both.bits {
		both.bits[i] |= o.bits[i]
	}
	both.recount()
	return both
}

// differing returns the slots of a table that lead to another backend than a base
// has for the same hash: all of them where the sizes differ.
func differing(base, t *table) *slotSet {
	if len(base.slots) != len(t.slots) {
		return allSlots(uint32(len(t.slots)))
	}
	s := &slotSet{size: uint32(len(t.slots)), bits: make([]uint64, (len(t.slots)+63)/64)}
	if base == t {
		return s
	}
	now := renumbered(base.owners, t.owners)
	for at := range s.bits {
		from := at * 64
		to := min(from+64, len(t.slots))
		s.bits[at] = differences(now, base.slots[from:to], t.slots[from:to])
		s.count += bits.OnesCount64(s.bits[at])
	}
	return s
}

// differences has a bit for each of 64 slots that do not lead where they led.
func differences(now []int32, before, after []uint16) uint64 {
	var word uint64
	after = after[:len(before)]
	for i, member := range before {
		// Without a branch: 1 where the two numbers differ.
		differs := uint64(uint32(now[member]) ^ uint32(after[i]))
		word |= (differs + (1<<32 - 1)) >> 32 << i
	}
	return word
}

// noMember is no member's number.
const noMember = -1

// renumbered returns the number that each of the old owners has among the new ones,
// or noMember.
func renumbered(old, new []netip.AddrPort) []int32 {
	numbers := make([]int32, len(old))
	var at map[netip.AddrPort]int32
	next := 0
	for i, owner := range old {
		// Mostly they follow each other as before.
		if next < len(new) && new[next] == owner {
			numbers[i] = int32(next)
			next++
			continue
		}
		if at == nil {
			at = make(map[netip.AddrPort]int32, len(new))
			for number, owner := range new {
				at[owner] = int32(number)
			}
		}
		number, there := at[owner]
		if !there {
			numbers[i] = noMember
			continue
		}
		numbers[i], next = number, int(number)+1
	}
	return numbers
}

// inTransition says whether some packets go by something else than the table alone.
func (v view) inTransition() bool { return v.base != nil || !v.moved.empty() }

// quietRounds is how many rounds of the janitor without a flow of the service end the
// look-ups.
const quietRounds = 2

// settled returns the view after a full round of the janitor that found so many flows
// of the service. The base goes when the window is over; that some slots have moved
// is remembered for longer, for as long as flows of theirs may be.
func (v view) settled(now time.Time, tracked bool, flows uint64) (view, bool) {
	switch {
	case v.base != nil && now.After(v.until):
		v.base, v.quiet = nil, 0
		if tracked {
			// Its flows are looked up anyway.
			v.moved = nil
		}
		return v, true
	case v.base != nil || v.moved.empty():
		return v, false
	case tracked:
		v.moved = nil
		return v, true
	case flows > 0:
		changed := v.quiet != 0
		v.quiet = 0
		return v, changed
	}
	v.quiet++
	if v.quiet >= quietRounds {
		v.moved, v.since, v.until = nil, time.Time{}, time.Time{}
	}
	return v, true
}
