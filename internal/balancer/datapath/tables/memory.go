// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/memleft"
)

// CheckMemory refuses tables for which this process has too little memory while it makes them: the kernel would kill
// it.
func CheckMemory(recipes []Recipe, look func() memleft.Available) error {
	var need, largest, tables uint64
	for i := range recipes {
		r := &recipes[i]
		if len(r.Owners) == 0 {
			continue
		}
		// Where some are absent, it is beside the table of all.
		bytes := uint64(r.Size) * slotBytes
		need, largest, tables = need+bytes, max(largest, bytes), tables+1
		if len(r.Owners) < len(r.All) {
			need += bytes
		}
	}
	if need < minCheckedTables {
		return nil
	}
	// Garbage meanwhile, and the order of the turns by weights.
	need += need/4 + 4*largest
	left := look()
	if !left.Known || need <= left.Bytes {
		return nil
	}
	// In the kernel they take twice their slots, and four times the largest: see planArena.
	return fmt.Errorf(
		"%w: to make the tables of %d services takes %s, and %s are available (%s): use fewer services, or a smaller table_size: %d slots each would fit",
		lb.ErrTooLarge, tables, lb.Mebibytes(need), lb.Mebibytes(left.Bytes), left.Source,
		RoundDown(left.Usable()*4/(slotBytes*(13*tables+32))))
}

// slotBytes is the size of a slot.
const slotBytes = 2

// Tables of less than minCheckedTables bytes are made without asking.
const minCheckedTables = 16 << 20

// RoundDown leaves out a twentieth, for the available memory differs a little each time, and all but three digits of
// the rest.
func RoundDown(n uint64) uint64 {
	n -= n / 20
	unit := uint64(1)
	for n/unit >= 1000 {
		unit *= 10
	}
	return n / unit * unit
}
