// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"slices"
)

// cacheLine is the size of a cache line in bytes, on all that we run on. It is the
// unit of the arena, and the size of a member.
const cacheLine = 64

// extent is a piece of the arena, in units of a cache line. Two blocks may share
// one: the slots that a service has now may be those that it had before.
type extent struct {
	at, size uint32
	holders  int
}

// arena hands out the memory that slots and members lie in. It knows nothing of
// readers: what is given back must have none.
type arena struct {
	size uint32
	// free are the pieces that are not allocated, by where they begin. No two touch.
	free []piece
}

type piece struct{ at, size uint32 }

// newArena returns one of that many units.
func newArena(size uint32) *arena {
	a := &arena{size: size}
	if size > 0 {
		a.free = []piece{{0, size}}
	}
	return a
}

// take returns a piece of that many units, at least one, or nil where none is as
// large. It takes from the smallest that will do, so that large ones stay whole.
func (a *arena) take(size uint32) *extent {
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
	e := &extent{at: p.at, size: size, holders: 1}
	p.at, p.size = p.at+size, p.size-size
	if p.size == 0 {
		a.free = slices.Delete(a.free, best, best+1)
	}
	return e
}

// give takes a piece back.
func (a *arena) give(e *extent) {
	at, _ := slices.BinarySearchFunc(a.free, e.at, func(p piece, at uint32) int { return cmp.Compare(p.at, at) })
	a.free = slices.Insert(a.free, at, piece{e.at, e.size})
	if at+1 < len(a.free) && a.free[at].at+a.free[at].size == a.free[at+1].at {
		a.free[at].size += a.free[at+1].size
		a.free = slices.Delete(a.free, at+1, at+2)
	}
	if at > 0 && a.free[at-1].at+a.free[at-1].size == a.free[at].at {
		a.free[at-1].size += a.free[at].size
		a.free = slices.Delete(a.free, at, at+1)
	}
}

// units is how many units so many bytes take.
func units(bytes int) uint32 { return uint32((bytes + cacheLine - 1) / cacheLine) }
