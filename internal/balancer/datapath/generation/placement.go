// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"bytes"
	"unsafe"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
)

// SetPlacements records the services' placements in the memory that packets go by from now on, in the order of the
// change's records.
func (c *Revision) SetPlacements(homes []Placement) {
	for i, r := range c.Records {
		r.placement = homes[i]
	}
}

// memberBytes is the size of a member.
const memberBytes = int(unsafe.Sizeof(objects.XDPBackend{}))

// placeService finds room for a service, and writes its blocks there, which packets do not read yet. Blocks that are
// the same as in was, the service before, are shared with it. It returns false where there is no room, and holds
// nothing then. The rows are those of the service's backends.
func (m *Memory) placeService(after, before *Record, rows []objects.XDPBackend) (Placement, bool) {
	h := placer{Memory: m}
	if before != nil {
		h.old, h.view = before.placement, before.View
	}
	v := after.View
	home := Placement{value: after.value()}
	home.table = h.table(v.Table, v.Moved, after.Hosts())
	home.members = h.members(after.members(rows))
	if v.Base != nil {
		home.baseTable = h.baseTable(v.Base)
		home.baseMembers = h.members(after.baseMembers(rows))
	}
	if h.full {
		m.release(&home, m.arena.Free)
		return Placement{}, false
	}
	home.value.Current = block(v.Table, home.table, home.members)
	home.value.Base = block(v.Base, home.baseTable, home.baseMembers)
	return home, true
}

// block has the offsets of a table and its members.
func block(t *tables.Table, slots, members *mapmem.Extent) objects.XDPBlock {
	if slots == nil || members == nil {
		return objects.XDPBlock{}
	}
	return objects.XDPBlock{Table: (slots.At*mapmem.CacheLine + uint32(t.Before())) / 2, Members: members.At}
}

// release drops a service's pieces; give gets those that no service holds any more.
func (m *Memory) release(home *Placement, free func(*mapmem.Extent)) {
	for _, e := range home.pieces() {
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

// table places slots, and behind them, from the next cache line on, the service's hosts.
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
