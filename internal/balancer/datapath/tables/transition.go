// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Window returns for how long after the last change of a service's backends packets of flows without an entry are sent
// by the base.
func Window(s *lb.RoutedService) time.Duration {
	switch {
	case s.Transition.Window > 0:
		return s.Transition.Window
	case s.Protocol == lb.UDP:
		return lb.DefaultUDPWindow
	}
	return lb.DefaultTCPWindow
}

// View has the tables of a service: the one for new flows and, during a transition, the one before it. It is immutable;
// each change makes another.
type View struct {
	Table *Table
	// Moved are the slots of the table whose backend has changed, or that may have flows with entries because it had
	// changed; nil: none.
	Moved *SlotSet
	// Base is the table as it was before the first change of the transition.
	Base *Table
	// Last is the last table that had members, where this one has none.
	Last *Table
	// Since is when the transition began, and Until when it ends unless there is another change.
	Since, Until time.Time
	// Quiet counts the janitor's rounds without a flow of the service since the transition ended.
	Quiet int
}

// SlotSet is a set of slots of a table of some size.
type SlotSet struct {
	Size  uint32
	Count int
	Bits  []uint64
}

// Recount counts the slots.
func (s *SlotSet) Recount() {
	s.Count = 0
	for _, word := range s.Bits {
		s.Count += bits.OnesCount64(word)
	}
}

// Has reports whether a slot is in the set.
func (s *SlotSet) Has(slot int) bool { return s != nil && s.Bits[slot/64]>>(slot%64)&1 != 0 }

// each calls do for each slot in the set.
func (s *SlotSet) each(do func(slot int)) {
	if s.Empty() {
		return
	}
	for at, word := range s.Bits {
		for ; word != 0; word &= word - 1 {
			do(at*64 + bits.TrailingZeros64(word))
		}
	}
}

// Empty reports whether the set has no slot.
func (s *SlotSet) Empty() bool { return s == nil || s.Count == 0 }

// AllSlots returns the set of all slots.
func AllSlots(size uint32) *SlotSet {
	s := &SlotSet{Size: size, Count: int(size), Bits: make([]uint64, (size+63)/64)}
	for slot := range size {
		s.Bits[slot/64] |= 1 << (slot % 64)
	}
	return s
}

// TableChange has the effects of a service's change beyond its table.
type TableChange struct {
	// LookUp: flows of any slot may be remembered.
	LookUp bool
	// Rehash: packets hash to other slots than before the change, so that earlier slots have no meaning.
	Rehash bool
}

// With returns the view after a change to another table.
func (v View) With(next *Table, now time.Time, window time.Duration, c TableChange) View {
	if v.Table == nil {
		return View{Table: next}
	}
	before := v.Table
	if len(before.Slots) == 0 {
		before = v.Last
	}
	after := View{Table: next, Moved: v.Moved, Base: v.Base, Since: v.Since, Until: v.Until, Quiet: v.Quiet}
	if len(next.Slots) == 0 {
		after.Last = before
	}
	if c.Rehash {
		after.Base, after.Last = nil, nil
		c.LookUp = c.LookUp || !v.Moved.Empty()
	} else if next != v.Table && before != nil {
		after.change(before, now, window)
	}
	if c.LookUp {
		if !v.InTransition() && after.Base == nil {
			after.Since = now
		}
		after.Moved, after.Quiet = AllSlots(slotsOf(next, before)), 0
	}
	if len(next.Slots) > 0 {
		after.Moved = after.Moved.onto(next)
	}
	return after
}

// slotsOf returns the number of slots of a table; for a table without members the number of the table before, or 1 if
// that had none, either: flows with entries must be looked up meanwhile, too.
func slotsOf(t, before *Table) uint32 {
	switch {
	case len(t.Slots) > 0:
		return uint32(len(t.Slots))
	case before != nil:
		return uint32(len(before.Slots))
	}
	return 1
}

// change begins a transition from the table before, or continues the present one.
func (v *View) change(before *Table, now time.Time, window time.Duration) {
	base := v.Base
	if base == nil {
		base = before
	}
	if len(v.Table.Slots) == 0 {
		v.begin(base, now, window)
		return
	}
	moved := Differing(base, v.Table)
	if moved.Empty() && v.Base == nil {
		// The same slots to the same backends.
		return
	}
	v.Moved = moved.Union(v.Moved)
	v.begin(base, now, window)
}

// begin sets the base and the times of a transition.
func (v *View) begin(base *Table, now time.Time, window time.Duration) {
	if v.Base == nil {
		v.Base, v.Since = base, now
	}
	v.Until, v.Quiet = now.Add(window), 0
}

// onto returns the set for another table: the same if the size is the same, otherwise all slots; nil for an empty set.
func (s *SlotSet) onto(t *Table) *SlotSet {
	if s.Empty() {
		return nil
	}
	if int(s.Size) == len(t.Slots) {
		return s
	}
	return AllSlots(uint32(len(t.Slots)))
}

// Union returns the slots that are in either set; all slots if the sizes differ.
func (s *SlotSet) Union(o *SlotSet) *SlotSet {
	switch {
	case o.Empty():
		return s
	case o.Size != s.Size:
		return AllSlots(s.Size)
	}
	both := &SlotSet{Size: s.Size, Bits: slices.Clone(s.Bits)}
	for i := range both.Bits {
		both.Bits[i] |= o.Bits[i]
	}
	both.Recount()
	return both
}

// Differing returns the slots of a table whose backend differs from the base's for the same hash; all if the sizes
// differ.
func Differing(base, t *Table) *SlotSet {
	if len(base.Slots) != len(t.Slots) {
		return AllSlots(uint32(len(t.Slots)))
	}
	s := &SlotSet{Size: uint32(len(t.Slots)), Bits: make([]uint64, (len(t.Slots)+63)/64)}
	if base == t {
		return s
	}
	now := Renumbered(base.Owners, t.Owners)
	for at := range s.Bits {
		from := at * 64
		to := min(from+64, len(t.Slots))
		s.Bits[at] = differences(now, base.Slots[from:to], t.Slots[from:to])
		s.Count += bits.OnesCount64(s.Bits[at])
	}
	return s
}

// differences returns a word with a bit set for each of 64 slots whose backend differs.
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

// NoMember is the number of a backend that is no member.
const NoMember = -1

// Renumbered returns the number of each of the old owners among the new ones, or NoMember.
func Renumbered(old, new []netip.AddrPort) []int32 {
	numbers := make([]int32, len(old))
	var at map[netip.AddrPort]int32
	next := 0
	for i, owner := range old {
		// Mostly the order is the same.
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
		number, found := at[owner]
		if !found {
			numbers[i] = NoMember
			continue
		}
		numbers[i], next = number, int(number)+1
	}
	return numbers
}

// InTransition reports whether packets may need a base or a flow lookup besides the table.
func (v View) InTransition() bool { return v.Base != nil || !v.Moved.Empty() }

// quietRounds is after how many of the janitor's rounds without a flow of the service lookups end.
const quietRounds = 2

// AfterRound returns the view after a complete round of the janitor that found that many flows of the service, and
// whether the view has changed. The base is dropped at the end of the window; the set of moved slots stays as long as
// they may have flows.
func (v View) AfterRound(now time.Time, tracked bool, flows uint64) (View, bool) {
	switch {
	case v.Base != nil && now.After(v.Until):
		v.Base, v.Quiet = nil, 0
		if tracked {
			// Its flows are looked up anyway.
			v.Moved = nil
		}
		return v, true
	case v.Base != nil || v.Moved.Empty():
		return v, false
	case tracked:
		v.Moved = nil
		return v, true
	case flows > 0:
		changed := v.Quiet != 0
		v.Quiet = 0
		return v, changed
	}
	v.Quiet++
	if v.Quiet >= quietRounds {
		v.Moved, v.Since, v.Until = nil, time.Time{}, time.Time{}
	}
	return v, true
}

// Transition returns the progress of a transition between a service's tables; nil where there is none.
func (v View) Transition() *lb.TransitionProgress {
	if !v.InTransition() {
		return nil
	}
	t := &lb.TransitionProgress{Since: v.Since, Until: v.Until, Slots: len(v.Table.Slots), Base: v.Base != nil}
	switch {
	case t.Slots == 0:
		// There is no backend for new flows: every slot of the last table is without one.
		t.Slots = v.lastSlots()
		t.MovedSlots = t.Slots
	case v.Moved != nil:
		t.MovedSlots = v.Moved.Count
	}
	return t
}

// lastSlots returns the number of slots of the last table with members, where the present one has none.
func (v View) lastSlots() int {
	for _, t := range []*Table{v.Last, v.Base} {
		if t != nil && len(t.Slots) > 0 {
			return len(t.Slots)
		}
	}
	if v.Moved != nil { // after a change of the hash no table is kept
		return int(v.Moved.Size)
	}
	return 0
}
