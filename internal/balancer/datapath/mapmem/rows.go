// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// backendWords is the size of a backend in words, NextWord the word with its index, its generation and, in the upper 16
// bits, its `next`.
const (
	backendWords = CacheLine / 8
	NextWord     = 6
	nextShift    = 48
)

// Rows are the backends by index. The value of an index changes atomically: a new value is written into a spare row,
// and then the index's own row refers to that.
type Rows struct {
	memory Storage
	// at[i] is the row with the present value of index i: its own, or a spare one.
	at []uint32
	// fresh[i]: no packet can have read index i.
	fresh []bool
	// spare are rows that no packet reads.
	spare []uint32
}

// NewRows returns rows for that many indices and that many spare ones, in zeroed memory.
func NewRows(memory Storage, indices, spares uint32) *Rows {
	r := &Rows{memory: memory, at: make([]uint32, indices), fresh: make([]bool, indices)}
	for i := range r.at {
		r.at[i], r.fresh[i] = uint32(i), true
	}
	for i := range spares {
		// The lowest is used first.
		r.spare = append(r.spare, indices+spares-1-i)
	}
	return r
}

// row returns the words of a row.
func (r *Rows) row(at uint32) Storage { return r.memory[at*backendWords:][:backendWords] }

// Get returns the value of an index.
func (r *Rows) Get(index uint32) objects.XDPBackend {
	b := ElementsOf[objects.XDPBackend](r.row(r.at[index]))[0]
	b.Next = 0
	return b
}

// NeedsSpare reports whether Set will take a spare row.
func (r *Rows) NeedsSpare(index uint32, value *objects.XDPBackend) bool {
	return !r.fresh[index] && !r.isOwn(index, value)
}

// isOwn reports whether the index's own row has that value. Once packets may read that row, only its reference to a
// spare row changes.
func (r *Rows) isOwn(index uint32, value *objects.XDPBackend) bool {
	own, wanted := r.row(index), WordsOf(value)
	for i, word := range wanted {
		previous := own.Load(uint32(i))
		if i == NextWord {
			previous &= 1<<nextShift - 1
		}
		if previous != word {
			return false
		}
	}
	return true
}

// Set sets the value of an index, whose Next is 0. There must be a spare row where NeedsSpare returns true.
func (r *Rows) Set(index uint32, value *objects.XDPBackend, later *Grace) {
	own, before := r.row(index), r.at[index]
	switch {
	case r.fresh[index]:
		copy(own, WordsOf(value))
		r.fresh[index] = false
		return
	case r.isOwn(index, value):
		own.Store(NextWord, own.Load(NextWord)&(1<<nextShift-1))
		r.at[index] = index
	default:
		at := r.spare[len(r.spare)-1]
		r.spare = r.spare[:len(r.spare)-1]
		copy(r.row(at), WordsOf(value))
		next := uint64(at) - uint64(len(r.at)) + 1
		own.Store(NextWord, own.Load(NextWord)&(1<<nextShift-1)|next<<nextShift)
		r.at[index] = at
	}
	if before != index {
		later.AfterGrace(func() { r.spare = append(r.spare, before) })
	}
}

// IsFresh reports whether no packet can have read an index yet.
func (r *Rows) IsFresh(index uint32) bool { return r.fresh[index] }

// Spares returns the number of free spare rows.
func (r *Rows) Spares() int { return len(r.spare) }
