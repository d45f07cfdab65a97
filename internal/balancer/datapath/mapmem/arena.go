// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"cmp"
	"slices"
)

// CacheLine is the size of a cache line in bytes, on all supported processors. It is the unit of the arena, and the
// size of a member.
const CacheLine = 64

// Extent is an allocated piece of the arena, in units of a cache line. Two blocks may share an extent, as a service's
// present and previous slots may be the same.
type Extent struct {
	At, Size uint32
	Refs     int
}

// Arena allocates the memory of slots and members. It does not wait for readers: a freed piece must have none.
type Arena struct {
	size uint32
	// free are the free pieces, in the order of their offsets. No two are adjacent.
	free []piece
}

type piece struct{ at, size uint32 }

// NewArena returns an arena of that many units.
func NewArena(size uint32) *Arena {
	a := &Arena{size: size}
	if size > 0 {
		a.free = []piece{{0, size}}
	}
	return a
}

// Allocate returns an extent of that many units, at least one, or nil where no free piece is as large. It allocates by
// best fit.
func (a *Arena) Allocate(size uint32) *Extent {
	size = max(size, 1)
	best := -1
	for i, p := range a.free {
		if p.size >= size && (best < 0 || p.size < a.free[best].size) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	p := &a.free[best]
	e := &Extent{At: p.at, Size: size, Refs: 1}
	p.at, p.size = p.at+size, p.size-size
	if p.size == 0 {
		a.free = slices.Delete(a.free, best, best+1)
	}
	return e
}

// Free frees an extent.
func (a *Arena) Free(e *Extent) {
	at, _ := slices.BinarySearchFunc(a.free, e.At, func(p piece, at uint32) int { return cmp.Compare(p.at, at) })
	a.free = slices.Insert(a.free, at, piece{e.At, e.Size})
	if at+1 < len(a.free) && a.free[at].at+a.free[at].size == a.free[at+1].at {
		a.free[at].size += a.free[at+1].size
		a.free = slices.Delete(a.free, at+1, at+2)
	}
	if at > 0 && a.free[at-1].at+a.free[at-1].size == a.free[at].at {
		a.free[at-1].size += a.free[at].size
		a.free = slices.Delete(a.free, at, at+1)
	}
}

// Units returns how many units that many bytes take.
func Units(bytes int) uint32 { return uint32((bytes + CacheLine - 1) / CacheLine) }
