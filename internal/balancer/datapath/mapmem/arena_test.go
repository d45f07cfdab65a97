// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"math/rand/v2"
	"testing"
)

func expectWhole(t *testing.T, a *Arena, taken []*Extent) {
	t.Helper()
	if err := a.Check(taken); err != nil {
		t.Fatal(err)
	}
}

// TestArena takes and gives at random.
func TestArena(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	a := NewArena(1000)
	var taken []*Extent
	refused := 0
	for range 20000 {
		if rng.IntN(2) == 0 || len(taken) == 0 {
			if e := a.Allocate(uint32(rng.IntN(60))); e != nil {
				taken = append(taken, e)
			} else {
				refused++
			}
		} else {
			i := rng.IntN(len(taken))
			a.Free(taken[i])
			taken[i] = taken[len(taken)-1]
			taken = taken[:len(taken)-1]
		}
		expectWhole(t, a, taken)
	}
	if refused == 0 {
		t.Error("the arena was never full: the test needs that")
	}
	for _, e := range taken {
		a.Free(e)
	}
	if len(a.free) != 1 || a.free[0] != (piece{0, 1000}) {
		t.Errorf("given back, it is %v", a.free)
	}
}

// FuzzArena lets the fuzzer choose the pieces that are taken, by each byte's lower bits, or given back.
func FuzzArena(f *testing.F) {
	f.Add(uint16(64), []byte{1, 2, 3, 0x81, 4, 0x80, 0x80})
	f.Fuzz(func(t *testing.T, size uint16, steps []byte) {
		a := NewArena(uint32(size % 512))
		var taken []*Extent
		for _, step := range steps {
			at := int(step & 0x7f)
			if step&0x80 == 0 {
				if e := a.Allocate(uint32(at)); e != nil {
					taken = append(taken, e)
				}
			} else if at < len(taken) {
				a.Free(taken[at])
				taken = append(taken[:at], taken[at+1:]...)
			}
			expectWhole(t, a, taken)
		}
	})
}
