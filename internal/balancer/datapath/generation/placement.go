// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"bytes"
	"unsafe"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
)

// SetPlacements records the services' placements in the memory that is in use from now on, in the order of the change's
// records.
func (c *Revision) SetPlacements(placements []Placement) {
	for i, r := range c.Records {
		r.placement = placements[i]
	}
}

// memberBytes is the size of a member.
const memberBytes = int(unsafe.Sizeof(objects.XDPBackend{}))

// placeService allocates room for a service, and writes its blocks there, which packets do not read yet. Blocks that
// are the same as in before, the service before the change, are shared with it. It returns false where there is no
// room, and then allocates nothing. rows are the rows of the service's backends.
func (m *Memory) placeService(after, before *Record, rows []objects.XDPBackend) (Placement, bool) {
	h := placer{Memory: m}
	if before != nil {
		h.old, h.view = before.placement, before.View
	}
	v := after.View
	placement := Placement{value: after.value()}
	placement.table = h.table(v.Table, v.Moved, after.Hosts())
	placement.members = h.members(after.members(rows))
	if v.Base != nil {
		placement.baseTable = h.baseTable(v.Base)
		placement.baseMembers = h.members(after.baseMembers(rows))
	}
	if h.full {
		m.release(&placement, m.arena.Free)
		return Placement{}, false
	}
	placement.value.Current = block(v.Table, placement.table, placement.members)
	placement.value.Base = block(v.Base, placement.baseTable, placement.baseMembers)
	return placement, true
}

// block returns the offsets of a table and its members.
func block(t *tables.Table, slots, members *mapmem.Extent) objects.XDPBlock {
	if slots == nil || members == nil {
		return objects.XDPBlock{}
	}
	return objects.XDPBlock{Table: (slots.At*mapmem.CacheLine + uint32(t.Before())) / 2, Members: members.At}
}

// release drops a service's references to its extents, and frees those without further references.
func (m *Memory) release(placement *Placement, free func(*mapmem.Extent)) {
	for _, e := range placement.pieces() {
		if e.Refs--; e.Refs == 0 {
			free(e)
		}
	}
}

// placer is the state of placeService while it runs.
type placer struct {
	*Memory
	old  Placement
	view tables.View
	full bool
}

// retain adds a reference to an extent.
func retain(e *mapmem.Extent) *mapmem.Extent {
	e.Refs++
	return e
}

// allocate returns a new extent and its memory; nil where there is no room.
func (h *placer) allocate(size int) (*mapmem.Extent, []byte) {
	e := h.arena.Allocate(mapmem.Units(size))
	if e == nil {
		h.full = true
		return nil, nil
	}
	return e, h.bytesOf(e)
}

// table places slots and, from the next cache line on, the service's hosts.
func (h *placer) table(t *tables.Table, moved *tables.SlotSet, hosts []objects.XDPHost) *mapmem.Extent {
	if len(t.Slots) == 0 {
		return nil
	}
	at, beside := int(mapmem.Units(t.Bytes()))*mapmem.CacheLine, hostBytes(hosts)
	if e := h.old.table; e != nil && h.view.Table == t && h.view.Moved == moved &&
		e.Size == mapmem.Units(at+len(beside)) && bytes.Equal(h.bytesOf(e)[at:][:len(beside)], beside) {
		return retain(e)
	}
	e, memory := h.allocate(at + len(beside))
	if e != nil {
		t.Write(memory, moved)
		copy(memory[at:], beside)
	}
	return e
}

func (h *placer) baseTable(t *tables.Table) *mapmem.Extent {
	switch {
	case h.old.baseTable != nil && h.view.Base == t:
		return retain(h.old.baseTable)
	case h.old.table != nil && h.view.Table == t:
		return retain(h.old.table)
	}
	e, memory := h.allocate(t.Bytes())
	if e != nil {
		t.Write(memory, nil)
	}
	return e
}

func (h *placer) members(rows []objects.XDPBackend) *mapmem.Extent {
	if len(rows) == 0 {
		return nil
	}
	wanted := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(rows))), len(rows)*memberBytes)
	for _, e := range []*mapmem.Extent{h.old.members, h.old.baseMembers} {
		if e != nil && int(e.Size) == len(rows) && bytes.Equal(h.bytesOf(e), wanted) {
			return retain(e)
		}
	}
	e, memory := h.allocate(len(wanted))
	copy(memory, wanted)
	return e
}
