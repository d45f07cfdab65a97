// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/binary"
	"unsafe"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// residence is where a service is in the memory of a generation: what packets read.
type residence struct {
	value objects.XDPService
	// The pieces of its blocks; nil where there is nothing to be there.
	table, members, baseTable, baseMembers *mapmem.Extent
	// baseIdle says that no packet is left that has read of an earlier base; nil: there
	// was none.
	baseIdle *bool
}

// pieces lists those that there are.
func (l *residence) pieces() []*mapmem.Extent {
	var all []*mapmem.Extent
	for _, e := range []*mapmem.Extent{l.table, l.members, l.baseTable, l.baseMembers} {
		if e != nil {
			all = append(all, e)
		}
	}
	return all
}

// memberBytes is the size of a member.
const memberBytes = int(unsafe.Sizeof(objects.XDPBackend{}))

// countBytes is the size of the number before a table.
const countBytes = 4

// before returns how many bytes there are before a table's slots, which begin on a
// cache line: the sequence, and the number.
func (t *table) before() int {
	return int(mapmem.Units(2*len(t.sequence)+countBytes)) * mapmem.CacheLine
}

// bytes is the size of a table with what is before it.
func (t *table) bytes() int { return t.before() + 2*len(t.slots) }

// need returns how many units a service takes in the arena.
func (v view) need() uint32 {
	n := uint32(0)
	for _, t := range []*table{v.table, v.base} {
		if t != nil && len(t.slots) > 0 {
			n += mapmem.Units(t.bytes()) + uint32(len(t.owners))
		}
	}
	return n
}

// write puts a table into memory that no packet reads.
func (t *table) write(memory []byte, moved *slotSet) {
	slots := memory[t.before():]
	binary.NativeEndian.PutUint32(memory[t.before()-countBytes:],
		uint32(len(t.owners))<<objects.XDPAgreementSEQUENCE_BITS|uint32(len(t.sequence)))
	sequence := memory[t.before()-countBytes-2*len(t.sequence):]
	for i, member := range t.sequence {
		binary.NativeEndian.PutUint16(sequence[2*i:], member)
	}
	written := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(slots))), len(t.slots))
	copy(written, t.slots)
	moved.each(func(slot int) { written[slot] |= uint16(objects.XDPSlotBitsSLOT_MOVED) })
}

// house finds room for a service, and writes there what packets do not read yet. What
// is the same as in was, the service before, stays where it is. It returns false where
// there is no room; nothing is held then. The rows are those of the service's backends.
func (m *memory) house(is, was *record, rows []objects.XDPBackend) (residence, bool) {
	h := housing{memory: m}
	if was != nil {
		h.old, h.view = was.home, was.view
	}
	v := is.view
	home := residence{value: is.value()}
	home.table = h.table(v.table, v.moved, is.hosts())
	home.members = h.members(is.members(rows))
	if v.base != nil {
		home.baseTable = h.baseTable(v.base)
		home.baseMembers = h.members(is.baseMembers(rows))
	}
	if h.full {
		m.release(&home, m.arena.Give)
		return residence{}, false
	}
	home.value.Current = block(v.table, home.table, home.members)
	home.value.Base = block(v.base, home.baseTable, home.baseMembers)
	return home, true
}

// block says where a table and its members are.
func block(t *table, slots, members *mapmem.Extent) objects.XDPBlock {
	if slots == nil || members == nil {
		return objects.XDPBlock{}
	}
	return objects.XDPBlock{Table: (slots.At*mapmem.CacheLine + uint32(t.before())) / 2, Members: members.At}
}

// release lets go of what a service has; give gets what no service holds any more.
func (m *memory) release(home *residence, give func(*mapmem.Extent)) {
	for _, e := range home.pieces() {
		if e.Holders--; e.Holders == 0 {
			give(e)
		}
	}
}

// housing is the work of house.
type housing struct {
	*memory
	old  residence
	view view
	full bool
}

// share holds a piece once more.
func share(e *mapmem.Extent) *mapmem.Extent {
	e.Holders++
	return e
}

// take returns a new piece and its memory; nil where there is no room.
func (h *housing) take(size int) (*mapmem.Extent, []byte) {
	e := h.arena.Take(mapmem.Units(size))
	if e == nil {
		h.full = true
		return nil, nil
	}
	return e, h.piece(e)
}

// table houses slots, and behind them, from the next cache line on, the service's hosts.
func (h *housing) table(t *table, moved *slotSet, hosts []objects.XDPHost) *mapmem.Extent {
	if len(t.slots) == 0 {
		return nil
	}
	at, beside := int(mapmem.Units(t.bytes()))*mapmem.CacheLine, hostBytes(hosts)
	if e := h.old.table; e != nil && h.view.table == t && h.view.moved == moved &&
		e.Size == mapmem.Units(at+len(beside)) && bytes.Equal(h.piece(e)[at:][:len(beside)], beside) {
		return share(e)
	}
	e, memory := h.take(at + len(beside))
	if e != nil {
		t.write(memory, moved)
		copy(memory[at:], beside)
	}
	return e
}

func (h *housing) baseTable(t *table) *mapmem.Extent {
	switch {
	case h.old.baseTable != nil && h.view.base == t:
		return share(h.old.baseTable)
	case h.old.table != nil && h.view.table == t:
		return share(h.old.table)
	}
	e, memory := h.take(t.bytes())
	if e != nil {
		t.write(memory, nil)
	}
	return e
}

func (h *housing) members(rows []objects.XDPBackend) *mapmem.Extent {
	if len(rows) == 0 {
		return nil
	}
	wanted := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(rows))), len(rows)*memberBytes)
	for _, e := range []*mapmem.Extent{h.old.members, h.old.baseMembers} {
		if e != nil && int(e.Size) == len(rows) && bytes.Equal(h.piece(e), wanted) {
			return share(e)
		}
	}
	e, memory := h.take(len(wanted))
	copy(memory, wanted)
	return e
}
