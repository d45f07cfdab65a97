// SPDX-License-Identifier: Apache-2.0

// Package maglev builds the lookup tables of Maglev hashing: D. E. Eisenbud et
// al., "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016,
// section 3.4. A table gives each backend a share of slots in proportion to its
// weight, and changes in few other slots when a backend comes or goes.
package maglev

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync/atomic"
)

// DefaultSize is the paper's small table: a prime well above a hundred times
// the number of backends of a common service, which bounds both unevenness and
// disruption to about a per cent.
const DefaultSize = 65537

// MaxSize is the largest table that Build makes. A table of that many slots
// takes 32 MiB, two bytes each; the paper's large one has 655,373.
const MaxSize = 1 << 24

// maxBackends is how many a slot of two bytes can name.
const maxBackends = 1 << 16

// Errors of Build and CheckSize.
var (
	ErrSizeNotPrime  = errors.New("maglev table size is not a prime number")
	ErrSizeTooLarge  = errors.New("maglev table size is too large")
	ErrSizeTooSmall  = errors.New("maglev table has fewer slots than backends")
	ErrNoBackend     = errors.New("no backend with a weight above 0")
	ErrDuplicateName = errors.New("two backends have the same name")
	ErrTooMany       = errors.New("more backends than a slot can name")
	ErrMismatch      = errors.New("the numbers of weights and of names differ")
)

// CheckSize returns nil if a table can have size slots, and ErrSizeNotPrime or
// ErrSizeTooLarge otherwise. The size must be prime: only then does stepping by
// any skip visit every slot.
func CheckSize(size uint32) error {
	if size > MaxSize {
		return fmt.Errorf("%w: %d is above %d", ErrSizeTooLarge, size, MaxSize)
	}
	if isPrime(size) {
		return nil
	}
	return fmt.Errorf("%w: %d; the next prime is %d", ErrSizeNotPrime, size, nextPrime(size))
}

// nextPrime returns the smallest prime that is not below n, which is at most
// MaxSize.
func nextPrime(n uint32) uint32 {
	for !isPrime(n) {
		n++
	}
	return n
}

// cachedPrime is the prime that was asked for last: thousands of tables have one size, and to ask
// takes longer than to fill a small one.
var cachedPrime atomic.Uint32

// isPrime is exact: ProbablyPrime has no false answer below 2^64.
func isPrime(n uint32) bool {
	if n != 0 && n == cachedPrime.Load() {
		return true
	}
	prime := new(big.Int).SetUint64(uint64(n)).ProbablyPrime(0)
	if prime {
		cachedPrime.Store(n)
	}
	return prime
}

// candidate is a backend that takes part in the filling of a table.
type candidate struct {
	name   string
	index  uint32 // in the caller's slices
	weight uint64
	path
}

// path is where a candidate is in its permutation of the slots.
type path struct {
	// next is the slot that the permutation offers next, skip the step to the
	// one after it; both below the table's size.
	next, skip uint32
}

// Table is a filled table, of which others can be made that lack some of its backends.
// It does not change.
type Table struct {
	slots []uint16
	// candidates are the backends with a weight, by name, each where the filling has left it
	// on its path.
	candidates []candidate
	// names is how many backends there are, those without a weight included.
	names int
}

// Slots are the table's; they are not to be changed. Each holds the index, into weights
// and names, of the backend that it leads to.
func (t *Table) Slots() []uint16 { return t.slots }

// Build is New(weights, names, size).Slots().
func Build(weights []uint32, names []string, size uint32) ([]uint16, error) {
	t, err := New(weights, names, size)
	if err != nil {
		return nil, err
	}
	return t.slots, nil
}

// New fills a table of size slots, a prime number. Backends of weight 0
// get no slot; every other one gets at least one, and its share of the table is
// its share of the weights, to within one slot and N/size of itself (N being
// the number of backends).
//
// Backends take slots in turns, each following a permutation of the slots that
// its name alone decides, so the order of the backends does not matter. The
// heaviest has a turn in each round and the others in proportion to it: the
// weighting of the paper's section 3.4 ("relative frequency of the backends'
// turns").
//
// Errors: those that CheckSize returns, ErrNoBackend, ErrSizeTooSmall,
// ErrDuplicateName, ErrTooMany, ErrMismatch.
func New(weights []uint32, names []string, size uint32) (*Table, error) {
	if err := CheckSize(size); err != nil {
		return nil, err
	}
	candidates, err := sortCandidates(weights, names, size)
	if err != nil {
		return nil, err
	}
	f := newFilling(candidates, size)
	t := &Table{slots: f.fill(), candidates: candidates, names: len(names)}
	for i := range candidates {
		candidates[i].path = f.paths[i]
	}
	return t, nil
}

// Without returns the slots of a table that lacks the backends of which absent, by their indices, says so. All others
// keep every slot that they have, and go on taking turns for those that are free again. So only the flows of the absent
// move, where to fill a table without them again would move some of all (the paper's section 5.3 has 2 % and less); and
// the work grows with the slots that are free again. Shares are as by New, to within one slot more and twice the
// N/size. Which slots the absent have left to whom depends on which others are absent, and not on which was so first.
//
// Errors: ErrMismatch; ErrNoBackend, where all are absent.
func (t *Table) Without(absent []bool) ([]uint16, error) {
	if len(absent) != t.names {
		return nil, fmt.Errorf("%w: %d are absent or not, %d names", ErrMismatch, len(absent), t.names)
	}
	present := make([]candidate, 0, len(t.candidates))
	for _, c := range t.candidates {
		if !absent[c.index] {
			present = append(present, c)
		}
	}
	switch len(present) {
	case 0:
		return nil, ErrNoBackend
	case len(t.candidates):
		return t.slots, nil
	}
	return newRefilling(present, t.slots, absent).fill(), nil
}

// sortCandidates returns the backends with a weight, sorted by name.
func sortCandidates(weights []uint32, names []string, size uint32) ([]candidate, error) {
	if len(weights) != len(names) {
		return nil, fmt.Errorf("%w: %d weights, %d names", ErrMismatch, len(weights), len(names))
	}
	if len(weights) > maxBackends {
		return nil, fmt.Errorf("%w: %d, and it can name %d", ErrTooMany, len(weights), maxBackends)
	}
	list := make([]candidate, 0, len(weights))
	for i, weight := range weights {
		if weight > 0 {
			list = append(list, newCandidate(names[i], uint32(i), weight, size))
		}
	}
	if len(list) == 0 {
		return nil, ErrNoBackend
	}
	if uint64(len(list)) > uint64(size) {
		return nil, fmt.Errorf("%w: %d backends, %d slots", ErrSizeTooSmall, len(list), size)
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(a.name, b.name) })
	for i := 1; i < len(list); i++ {
		if list[i].name == list[i-1].name {
			return nil, fmt.Errorf("%w: %q", ErrDuplicateName, list[i].name)
		}
	}
	return list, nil
}

// newCandidate derives offset and skip of the permutation from the name, as in
// the paper, from the two halves of one hash. SHA-256 because it mixes short,
// similar names well and gives the same table on every machine and release.
func newCandidate(name string, index, weight, size uint32) candidate {
	sum := sha256.Sum256([]byte(name))
	h1, h2 := binary.BigEndian.Uint64(sum[0:8]), binary.BigEndian.Uint64(sum[8:16])
	return candidate{
		name:   name,
		index:  index,
		weight: uint64(weight),
		path:   path{next: uint32(h1 % uint64(size)), skip: uint32(h2%uint64(size-1)) + 1},
	}
}
