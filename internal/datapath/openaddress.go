// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// serviceProbes is how many slots the program looks at.
const serviceProbes = uint32(xdpAgreementSERVICE_PROBES)

// The multipliers are HASH_MULTIPLIER and those after it in bpf/hash.h.
const (
	hashMultiplier  = 0x9e3779b97f4a7c15
	hashMultiplier2 = 0xc2b2ae3d27d4eb4f
	hashMultiplier3 = 0x165667b19e3779f9
)

// hashService4 is hash_service4 of bpf/hash.h.
func hashService4(key xdpServiceKey4) uint32 {
	b := binary.NativeEndian.AppendUint32(nil, key.Address)
	b = binary.NativeEndian.AppendUint16(b, key.Port)
	return uint32(binary.NativeEndian.Uint64(append(b, key.Protocol, key.Pad)) * hashMultiplier >> 32)
}

// hashService6 is hash_service6 of bpf/hash.h.
func hashService6(key xdpServiceKey6) uint32 {
	var b []byte
	for _, word := range key.Address {
		b = binary.NativeEndian.AppendUint32(b, word)
	}
	b = binary.NativeEndian.AppendUint16(b, key.Port)
	b = append(append(b, key.Protocol), key.Pad[:]...)
	word := binary.NativeEndian.Uint64
	return uint32((word(b)*hashMultiplier + word(b[8:])*hashMultiplier2 + word(b[16:])*hashMultiplier3) >> 32)
}

// roomy is the size up to which a table is laid out so loosely that a search
// seldom goes beyond its first slot: it fits the first-level cache anyway.
const roomy = 512

// leastSize is the smallest size that is tried for n keys.
func leastSize(n int) uint32 {
	return max(powerOfTwo(2*n), min(powerOfTwo(16*n), roomy), 2)
}

// maxSparseness bounds how many times larger than its contents a hash table may
// become. Keys that need more would have to be made for the purpose.
const maxSparseness = 64

// openAddress lays values out in a hash table with open addressing and linear
// probing, a power of two in size and at least 2, in which no key is more than
// serviceProbes - 1 slots from where its search begins. A load of at most one
// half makes the first size do almost always; otherwise the table doubles.
func openAddress[K comparable, V, S any](of map[K]V, hash func(K) uint32, slot func(K, V) S) ([]S, error) {
	least := leastSize(len(of))
	for size := least; size <= maxSparseness*least; size *= 2 {
		if at, ok := placeAll(of, hash, size); ok {
			slots := make([]S, size)
			for index, key := range at {
				slots[index] = slot(key, of[key])
			}
			return slots, nil
		}
	}
	return nil, fmt.Errorf("the addresses and ports of %d services fall on each other in a hash table of %d slots", len(of), maxSparseness*least)
}

// hashShift is by how much a hash is shifted right for a table of that size.
func hashShift(size uint32) uint32 { return uint32(33 - bits.Len32(size)) }

func placeAll[K comparable, V any](of map[K]V, hash func(K) uint32, size uint32) (map[uint32]K, bool) {
	at := make(map[uint32]K, len(of))
	for key := range of {
		start, placed := hash(key)>>hashShift(size), false
		for probe := uint32(0); probe < serviceProbes && !placed; probe++ {
			index := (start + probe) & (size - 1)
			if _, taken := at[index]; !taken {
				at[index], placed = key, true
			}
		}
		if !placed {
			return nil, false
		}
	}
	return at, true
}
