// SPDX-License-Identifier: Apache-2.0

package checkpath

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// fakeTargetMap has the rows that were written.
type fakeTargetMap map[uint32]bool

func (m fakeTargetMap) Put(key, _ any) error {
	m[key.(uint32)] = true
	return nil
}

func (m fakeTargetMap) Delete(key any) error {
	if !m[key.(uint32)] {
		return errors.New("no such row")
	}
	delete(m, key.(uint32))
	return nil
}

// TestRemovedTargets: the rows of removed backends are removed, however many backends come and go. A backend that stays
// keeps its row and its mark.
func TestRemovedTargets(t *testing.T) {
	backend := func(n int) lb.BackendKey {
		return lb.BackendKey{Address: netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), Port: 80}
	}
	const stays, atATime, rounds = 0, 500, 20
	rows, all, first := fakeTargetMap{}, &targets{}, 1
	present := func() func(lb.BackendKey) bool {
		now := map[lb.BackendKey]bool{backend(stays): true}
		for n := first; n < first+atATime; n++ {
			now[backend(n)] = true
		}
		return func(key lb.BackendKey) bool { return now[key] }
	}
	store := func(n int) uint32 {
		t.Helper()
		mark, err := all.store(rows, backend(n), objects.XDPCheckTarget{}, present)
		if err != nil || mark == 0 || !rows[mark] {
			t.Fatalf("backend %d: mark %d, %v, of %d rows", n, mark, err, len(rows))
		}
		return mark
	}
	mark, given := store(stays), map[uint32]bool{}
	for range rounds {
		for n := first; n < first+atATime; n++ {
			one := store(n)
			if given[one] || one == mark || store(n) != one {
				t.Fatalf("backend %d: the mark %d is another's, or changed", n, one)
			}
			given[one] = true
		}
		if got := store(stays); got != mark {
			t.Errorf("the mark of a backend that stays was %d and is %d", mark, got)
		}
		first += atATime
	}
	if most := max(2*(atATime+1), minTargets); len(rows) > most || len(all.byBackend) != len(rows) {
		t.Errorf("%d rows and %d targets, want %d at most", len(rows), len(all.byBackend), most)
	}
}
