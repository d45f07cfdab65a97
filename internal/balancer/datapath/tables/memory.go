// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/memleft"
)

// CheckMemory returns an error if this process has too little memory to build these tables: the kernel would kill it.
func CheckMemory(recipes []Recipe, read func() memleft.Available) error {
	var need, largest, tables uint64
	for i := range recipes {
		r := &recipes[i]
		if len(r.Owners) == 0 {
			continue
		}
		// Where backends are absent, the table of all backends is built, too.
		bytes := uint64(r.Size) * slotBytes
		need, largest, tables = need+bytes, max(largest, bytes), tables+1
		if len(r.Owners) < len(r.All) {
			need += bytes
		}
	}
	if need < minCheckedTables {
		return nil
	}
	// For garbage, and for the order of preferences in building.
	need += need/4 + 4*largest
	available := read()
	if !available.Known || need <= available.Bytes {
		return nil
	}
	// The kernel memory is twice all tables and four times the largest one: see planArena.
	return fmt.Errorf(
		"%w: to make the tables of %d services takes %s, and %s are available (%s): use fewer services, or a smaller table_size: %d slots each would fit",
		lb.ErrTooLarge, tables, lb.Mebibytes(need), lb.Mebibytes(available.Bytes), available.Source,
		RoundDown(available.Usable()*4/(slotBytes*(13*tables+32))))
}

// slotBytes is the size of a slot.
const slotBytes = 2

// minCheckedTables is the size in bytes from which on tables are checked.
const minCheckedTables = 16 << 20

// RoundDown subtracts a twentieth, since the available memory varies, and rounds down to three digits.
func RoundDown(n uint64) uint64 {
	n -= n / 20
	unit := uint64(1)
	for n/unit >= 1000 {
		unit *= 10
	}
	return n / unit * unit
}
