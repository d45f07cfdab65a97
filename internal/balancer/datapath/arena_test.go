// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"math/rand/v2"
	"testing"
)

// expectWhole checks that the free pieces and those that were taken are the arena, with
// nothing between and nothing twice.
func expectWhole(t *testing.T, a *arena, taken []*extent) {
	t.Helper()
	owner := make([]int, a.size)
	last := uint32(0)
	for i, p := range a.free {
		if p.size == 0 || i > 0 && p.at <= last {
			t.Fatalf("free pieces %v: empty, out of order, or touching", a.free)
		}
		last = p.at + p.size
		for at := p.at; at < last; at++ {
			owner[at]++
		}
	}
	for _, e := range taken {
		for at := e.at; at < e.at+e.size; at++ {
			owner[at]++
		}
	}
	for at, n := range owner {
		if n != 1 {
			t.Fatalf("unit %d of %d has %d owners", at, a.size, n)
		}
	}
}

// TestArena takes and gives at random.
func TestArena(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	a := newArena(1000)
	var taken []*extent
	refused := 0
	for range 20000 {
		if rng.IntN(2) == 0 || len(taken) == 0 {
			if e := a.take(uint32(rng.IntN(60))); e != nil {
				taken = append(taken, e)
			} else {
				refused++
			}
		} else {
			i := rng.IntN(len(taken))
			a.give(taken[i])
			taken[i] = taken[len(taken)-1]
			taken = taken[:len(taken)-1]
		}
		expectWhole(t, a, taken)
	}
	if refused == 0 {
		t.Error("the arena was never full: the test needs that")
	}
	for _, e := range taken {
		a.give(e)
	}
	if len(a.free) != 1 || a.free[0] != (piece{0, 1000}) {
		t.Errorf("given back, it is %v", a.free)
	}
}

// FuzzArena lets the fuzzer choose what is taken, by each byte's lower bits, or given
// back.
func FuzzArena(f *testing.F) {
	f.Add(uint16(64), []byte{1, 2, 3, 0x81, 4, 0x80, 0x80})
	f.Fuzz(func(t *testing.T, size uint16, steps []byte) {
		a := newArena(uint32(size % 512))
		var taken []*extent
		for _, step := range steps {
			at := int(step & 0x7f)
			if step&0x80 == 0 {
				if e := a.take(uint32(at)); e != nil {
					taken = append(taken, e)
				}
			} else if at < len(taken) {
				a.give(taken[at])
				taken = append(taken[:at], taken[at+1:]...)
			}
			expectWhole(t, a, taken)
		}
	})
}
