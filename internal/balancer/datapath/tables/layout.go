// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"encoding/binary"
	"unsafe"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// Before returns the number of bytes before a table's slots, which begin on a cache line: the sequence, and the number.
func (t *Table) Before() int {
	return int(mapmem.Units(2*len(t.Sequence)+countBytes)) * mapmem.CacheLine
}

// Bytes is the size of a table with the bytes before its slots.
func (t *Table) Bytes() int { return t.Before() + 2*len(t.Slots) }

// Write writes a table into memory that no packet reads yet.
func (t *Table) Write(memory []byte, moved *SlotSet) {
	slots := memory[t.Before():]
	binary.NativeEndian.PutUint32(memory[t.Before()-countBytes:],
		uint32(len(t.Owners))<<objects.XDPAgreementSEQUENCE_BITS|uint32(len(t.Sequence)))
	sequence := memory[t.Before()-countBytes-2*len(t.Sequence):]
	for i, member := range t.Sequence {
		binary.NativeEndian.PutUint16(sequence[2*i:], member)
	}
	written := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(slots))), len(t.Slots))
	copy(written, t.Slots)
	moved.each(func(slot int) { written[slot] |= uint16(objects.XDPSlotBitsSLOT_MOVED) })
}

// Need returns the units of an arena (mapmem.Units) that the tables need with their members.
func (v View) Need() uint32 {
	n := uint32(0)
	for _, t := range []*Table{v.Table, v.Base} {
		if t != nil && len(t.Slots) > 0 {
			n += mapmem.Units(t.Bytes()) + uint32(len(t.Owners))
		}
	}
	return n
}

// countBytes is the size of the number before a table.
const countBytes = 4
