// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// Lookups as the programs do them, and checks of invariants, for tests.

// Check returns an error unless the free pieces and the allocated extents make up the arena, without gaps or overlaps.
func (a *Arena) Check(taken []*Extent) error {
	owner := make([]int, a.size)
	last := uint32(0)
	for i, p := range a.free {
		if p.size == 0 || i > 0 && p.at <= last {
			return fmt.Errorf("the free pieces %v are empty, out of order, or touch", a.free)
		}
		last = p.at + p.size
		for at := p.at; at < last; at++ {
			owner[at]++
		}
	}
	for _, e := range taken {
		for at := e.At; at < e.At+e.Size; at++ {
			owner[at]++
		}
	}
	for at, n := range owner {
		if n != 1 {
			return fmt.Errorf("unit %d of %d has %d owners", at, a.size, n)
		}
	}
	return nil
}

// Find looks an index up as backend_at of bpf/balancer/maps.h and its callers do.
func (r *Rows) Find(index uint32) objects.XDPBackend {
	row := index
	if next := r.row(index).Load(NextWord) >> nextShift; next != 0 {
		row = uint32(len(r.at)) + uint32(next) - 1
	}
	b := ElementsOf[objects.XDPBackend](r.row(row))[0]
	b.Next = 0
	return b
}

// Lookup returns the value of a key, nil where there is none, as find_service4 and find_service6 of
// bpf/balancer/select/lookup.h do.
func (d *Directory) Lookup(key Key) Storage {
	start := hashOf(key) >> HashShift(d.mask+1)
	for probe := range serviceProbes {
		element := d.element((start + probe) & d.mask)
		same, empty := true, true
		for i := range d.keyWords() {
			same = same && element.Load(i) == key[i]
		}
		if d.six {
			empty = element.Load(0)|element.Load(1) == 0
		} else {
			empty = uint32(element.Load(0)) == 0
		}
		if same {
			return element[d.keyWords():]
		}
		if empty {
			return nil
		}
	}
	return nil
}

// Keys returns the number of keys.
func (d *Directory) Keys() int { return len(d.at) }
