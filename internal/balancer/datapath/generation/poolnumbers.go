// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// PoolNumbers are the addresses of full NAT by their numbers, of IPv4 and of IPv6. A flow's entry has the number of its
// address. An address keeps its number through changes of the pool, also while it is not in the pool, because it may be
// added again. The value is immutable; each change makes another.
type PoolNumbers [2][]netip.Addr

// maxPoolNumbers is the number of numbers of a family, many times the addresses of a pool. Beyond it, a new address
// gets the number of an address that is no longer in the pool.
const maxPoolNumbers = 1024

// with returns the numbers after a change to a pool.
func (n PoolNumbers) with(pool lb.Pool) PoolNumbers {
	for f := range n {
		n[f] = slices.Clone(n[f])
	}
	for _, address := range pool.All() {
		f := mapmem.Family(address)
		if slices.Contains(n[f], address) {
			continue
		}
		unused := -1
		if len(n[f]) >= maxPoolNumbers {
			unused = slices.IndexFunc(n[f], func(a netip.Addr) bool { return !pool.Has(a) })
		}
		if unused < 0 {
			n[f] = append(n[f], address)
		} else {
			n[f][unused] = address
		}
	}
	return n
}

// pooled returns the numbers with only the addresses of a pool; other numbers have the zero address.
func (n PoolNumbers) pooled(pool lb.Pool) PoolNumbers {
	for f := range n {
		n[f] = slices.Clone(n[f])
		for i, address := range n[f] {
			if !pool.Has(address) {
				n[f][i] = netip.Addr{}
			}
		}
	}
	return n
}

// words returns the addresses in the layout of the data plane: zeros for numbers without an address.
func (n PoolNumbers) words(family int) []mapmem.Address {
	words := make([]mapmem.Address, len(n[family]))
	for i, address := range n[family] {
		if address.IsValid() {
			words[i] = mapmem.OfAddress(address)
		}
	}
	return words
}

// numbersOf returns the numbers of those of some addresses that are of one family.
func (n PoolNumbers) numbersOf(addresses []netip.Addr, family int) (numbers []uint32) {
	for i, address := range n[family] {
		if slices.Contains(addresses, address) {
			numbers = append(numbers, uint32(i))
		}
	}
	return numbers
}

// Number returns the number of an address, and whether it has one.
func (n PoolNumbers) Number(address netip.Addr) (uint16, bool) {
	if !address.IsValid() {
		return 0, false
	}
	at := slices.Index(n[mapmem.Family(address)], address)
	return uint16(max(at, 0)), at >= 0
}

// Saved returns both families' addresses, IPv4 first, each in the order of their numbers.
func (n PoolNumbers) Saved() []netip.Addr { return slices.Concat(n[0], n[1]) }

// poolNumbersOf returns the numbers that a snapshot has.
func poolNumbersOf(saved []netip.Addr) (n PoolNumbers) {
	for _, address := range saved {
		n[mapmem.Family(address)] = append(n[mapmem.Family(address)], address)
	}
	return n
}
