// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"math/rand/v2"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// TestRows changes backends at random: an index has the value that was set last, also when that is its first value
// again.
func TestRows(t *testing.T) {
	const indices, spares = 8, 12
	rng := rand.New(rand.NewPCG(3, 4))
	r, later := NewRows(make(Storage, (indices+spares)*backendWords), indices, spares), NewManualGrace()
	want := map[uint32]objects.XDPBackend{}
	waited := 0
	for step := range 20000 {
		index := uint32(rng.IntN(indices))
		value := objects.XDPBackend{Index: index, Generation: uint16(1 + rng.IntN(2)), Port: uint16(rng.IntN(3)),
			Up: uint8(rng.IntN(2))}
		if r.NeedsSpare(index, &value) && len(r.spare) == 0 {
			later.Wait()
			waited++
			if len(r.spare) == 0 {
				t.Fatalf("step %d: no spare row is left, with no reader", step)
			}
		}
		r.Set(index, &value, later)
		want[index] = value
		for index, value := range want {
			if got := r.Find(index); got != value {
				t.Fatalf("step %d: index %d has %+v, want %+v", step, index, got, value)
			}
			if got := r.Get(index); got != value {
				t.Fatalf("step %d: index %d is known as %+v, want %+v", step, index, got, value)
			}
		}
		if rng.IntN(10) == 0 {
			later.Wait()
		}
	}
	if waited == 0 {
		t.Error("there was always a spare row: the test needs it otherwise")
	}
}
