// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"math/rand/v2"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// find looks an index up as backend_at of bpf/balancer/maps.h and its callers do.
func (r *rows) find(index uint32) objects.XDPBackend {
	row := index
	if next := r.row(index).Load(nextWord) >> nextShift; next != 0 {
		row = uint32(len(r.at)) + uint32(next) - 1
	}
	b := mapmem.ElementsOf[objects.XDPBackend](r.row(row))[0]
	b.Next = 0
	return b
}

// TestRows changes backends at random: what is found under an index is what was set
// last, also when it is again what it was at first.
func TestRows(t *testing.T) {
	const indices, spares = 8, 12
	rng := rand.New(rand.NewPCG(3, 4))
	r, later := newRows(make(mapmem.Storage, (indices+spares)*backendWords), indices, spares), manualGrace()
	want := map[uint32]objects.XDPBackend{}
	waited := 0
	for step := range 20000 {
		index := uint32(rng.IntN(indices))
		value := objects.XDPBackend{Index: index, Generation: uint16(1 + rng.IntN(2)), Port: uint16(rng.IntN(3)), Up: uint8(rng.IntN(2))}
		if r.needsSpare(index, &value) && len(r.spare) == 0 {
			later.wait()
			waited++
			if len(r.spare) == 0 {
				t.Fatalf("step %d: no spare row is left, with no reader", step)
			}
		}
		r.set(index, &value, later)
		want[index] = value
		for index, value := range want {
			if got := r.find(index); got != value {
				t.Fatalf("step %d: index %d has %+v, want %+v", step, index, got, value)
			}
			if got := r.get(index); got != value {
				t.Fatalf("step %d: index %d is known as %+v, want %+v", step, index, got, value)
			}
		}
		if rng.IntN(10) == 0 {
			later.wait()
		}
	}
	if waited == 0 {
		t.Error("there was always a spare row: the test needs it otherwise")
	}
}
