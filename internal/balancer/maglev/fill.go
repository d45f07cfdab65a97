// SPDX-License-Identifier: Apache-2.0

package maglev

import (
	"math/bits"
	"slices"
)

// filling is a table while backends take its slots. Nearly all of the time goes into looking for free slots, the more
// the fewer there are; so the data that is looked at is small (a bit for each slot, eight bytes for each backend), and
// the last slots are found in another way.
type filling struct {
	size  uint32
	table []uint16
	// taken has a bit for each slot.
	taken []uint64
	// paths and owners are the candidates', in their order.
	paths  []path
	owners []uint16
	// left is how many slots are free at first: there are as many turns.
	left uint32
	// order is the order of turns; nil where all weights are equal: candidates take turns one by one.
	order []turn
}

// turn is the turn of a candidate, by its number.
type turn = uint32

// newFilling returns the filling of a table whose slots are all free.
func newFilling(candidates []candidate, size uint32) *filling {
	f := &filling{size: size, left: size, table: make([]uint16, size), taken: make([]uint64, (size+63)/64)}
	f.reset(candidates)
	return f
}

// newRefilling returns the filling of a table in which backends that are absent, by their numbers, have left their
// slots; the candidates are the others.
func newRefilling(candidates []candidate, table []uint16, absent []bool) *filling {
	size := uint32(len(table))
	f := &filling{size: size, table: slices.Clone(table), taken: make([]uint64, (size+63)/64)}
	here := make([]uint8, len(absent))
	for i := range absent {
		if !absent[i] {
			here[i] = 1
		}
	}
	for at := range f.taken {
		part := table[at*64 : min(at*64+64, len(table))]
		f.taken[at] = taken(here, part)
		f.left += uint32(len(part) - bits.OnesCount64(f.taken[at]))
	}
	f.reset(candidates)
	return f
}

// taken has a bit for each of 64 slots whose owner is here, for which that says 1.
func taken(here []uint8, owners []uint16) uint64 {
	var word uint64
	for i, owner := range owners {
		word |= uint64(here[owner]) << i
	}
	return word
}

func (f *filling) reset(candidates []candidate) {
	f.paths, f.owners = make([]path, len(candidates)), make([]uint16, len(candidates))
	for i := range candidates {
		f.paths[i], f.owners[i] = candidates[i].path, uint16(candidates[i].index)
	}
	f.order = turns(candidates, f.left)
}

// turns returns whose turn it is, that many times; nil where all weights
// are equal. Turn k of a candidate is
// in the first round in which the weights of its rounds add up to k times the
// heaviest; in each round it is in the candidates' order.
func turns(candidates []candidate, many uint32) []turn {
	var heaviest, lightest uint64 = 0, 1 << 32
	for i := range candidates {
		heaviest, lightest = max(heaviest, candidates[i].weight), min(lightest, candidates[i].weight)
	}
	if heaviest == lightest {
		return nil
	}
	// The turns of each round are counted, then put in their places.
	rounds := roundsFor(candidates, heaviest, uint64(many))
	begins := make([]uint32, rounds+1)
	forEachTurn(candidates, heaviest, rounds, func(_ int, round uint64) { begins[round+1]++ })
	for round := range rounds {
		begins[round+1] += begins[round]
	}
	order := make([]turn, many)
	forEachTurn(candidates, heaviest, rounds, func(at int, round uint64) {
		if to := begins[round]; to < many {
			order[to] = turn(at)
		}
		begins[round]++
	})
	return order
}

// forEachTurn calls do for each turn in the first rounds.
func forEachTurn(candidates []candidate, heaviest, rounds uint64, do func(at int, round uint64)) {
	for at := range candidates {
		// Turn k is due in round k * heaviest / weight, rounded up: without a division for
		// each, which would take longer than all the rest.
		weight := candidates[at].weight
		whole, part := heaviest/weight, heaviest%weight
		for round, remainder := uint64(0), uint64(0); ; {
			due := round
			if remainder > 0 {
				due++
			}
			if due >= rounds {
				break
			}
			do(at, due)
			round += whole
			if remainder += part; remainder >= weight {
				round, remainder = round+1, remainder-weight
			}
		}
	}
}

// roundsFor returns the least number of rounds with so many turns. There are no more
// than turns: the heaviest has one in each.
func roundsFor(candidates []candidate, heaviest, turns uint64) uint64 {
	least, most := uint64(1), turns
	for least < most {
		rounds, sum := (least+most)/2, uint64(0)
		for i := range candidates {
			// Rounds 0 to rounds-1 have those for which due <= (rounds-1) * weight.
			sum += (rounds-1)*candidates[i].weight/heaviest + 1
		}
		if sum >= turns {
			most = rounds
		} else {
			least = rounds + 1
		}
	}
	return least
}

// listThreshold is at how many free slots it is quicker to ask for each of them when a
// candidate comes to it than to follow the candidate past all that are taken.
func (f *filling) listThreshold() uint32 { return 1 << (bits.Len32(f.size) / 2) / 2 }

// fill lets the candidates take slots in turns until none is free. The first
// round gives a turn to every candidate, so each has at least one slot of an empty table.
func (f *filling) fill() []uint16 {
	last := f.left - min(f.left, f.listThreshold())
	if f.order == nil {
		f.takeSlots(last)
	}
	for _, at := range f.order[:min(int(last), len(f.order))] {
		f.table[f.takeNext(&f.paths[at])] = f.owners[at]
	}
	f.fillRest(last)
	return f.table
}

// takeSlots lets candidates of equal weight take that many slots.
func (f *filling) takeSlots(slots uint32) {
	for slots > 0 {
		n := min(slots, uint32(len(f.paths)))
		for at := range f.paths[:n] {
			f.table[f.takeNext(&f.paths[at])] = f.owners[at]
		}
		slots -= n
	}
}

// nextCandidate returns the candidate whose turn it is.
func (f *filling) nextCandidate(n uint32) turn {
	if f.order == nil {
		return n % turn(len(f.paths))
	}
	return f.order[n]
}

// takeNext takes the first free slot of a path.
func (f *filling) takeNext(p *path) uint32 {
	slot, skip, size, taken := p.next, p.skip, f.size, f.taken
	for {
		// Without a branch, which no CPU could predict: all are far below 2^31, so the sign reports whether a size too
		// many was taken off.
		next := slot + skip - size
		next += size & uint32(int32(next)>>31)
		if word := &taken[slot/64]; *word>>(slot%64)&1 == 0 {
			*word |= 1 << (slot % 64)
			p.next = next
			return slot
		}
		slot = next
	}
}

// fillRest gives the last free slots away: each to whose turn it is, the one that its
// path comes to first.
func (f *filling) fillRest(from uint32) {
	free := f.freeSlots()
	modulus := newModulus(f.size)
	inverses := map[turn]uint32{}
	for n := from; n < f.left; n++ {
		at := f.nextCandidate(n)
		p := &f.paths[at]
		inverse, known := inverses[at]
		if !known {
			inverse = modulus.inverse(p.skip)
			inverses[at] = inverse
		}
		best, steps := 0, uint32(1<<32-1)
		for i, slot := range free {
			ahead := slot - p.next
			if slot < p.next {
				ahead += f.size
			}
			if ahead = modulus.mul(ahead, inverse); ahead < steps {
				best, steps = i, ahead
			}
		}
		slot := free[best]
		free[best] = free[len(free)-1]
		free = free[:len(free)-1]
		if p.next = slot + p.skip; p.next >= f.size {
			p.next -= f.size
		}
		f.table[slot] = f.owners[at]
	}
}

// freeSlots lists the free slots.
func (f *filling) freeSlots() []uint32 {
	var list []uint32
	for at, word := range f.taken {
		for left := ^word; left != 0; left &= left - 1 {
			if slot := uint32(at*64 + bits.TrailingZeros64(left)); slot < f.size {
				list = append(list, slot)
			}
		}
	}
	return list
}

// modulus multiplies modulo a prime, without a division (P. Barrett, CRYPTO '86).
type modulus struct {
	prime      uint64
	reciprocal uint64
}

func newModulus(prime uint32) modulus {
	return modulus{uint64(prime), ^uint64(0) / uint64(prime)}
}

// mul returns a * b; both are below the prime.
func (m modulus) mul(a, b uint32) uint32 {
	product := uint64(a) * uint64(b)
	quotient, _ := bits.Mul64(product, m.reciprocal)
	remainder := product - quotient*m.prime
	for remainder >= m.prime {
		remainder -= m.prime
	}
	return uint32(remainder)
}

// inverse returns the multiplicative inverse of a: a to the power of the prime less 2, by Fermat's little theorem.
// (Modulo 2, that is 1.)
func (m modulus) inverse(a uint32) uint32 {
	result := uint32(1)
	for power := m.prime - 2; power > 0; power >>= 1 {
		if power&1 != 0 {
			result = m.mul(result, a)
		}
		a = m.mul(a, a)
	}
	return result
}
