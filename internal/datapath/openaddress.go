// SPDX-License-Identifier: Apache-2.0

package datapath

import "encoding/binary"

// serviceProbes is SERVICE_PROBES of bpf/types.h.
const serviceProbes = 8

// hashMultiplier is HASH_MULTIPLIER of bpf/hash.h.
const hashMultiplier = 0x9e3779b97f4a7c15

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
	h := binary.NativeEndian.Uint64(b) * hashMultiplier
	h = (h ^ h>>32 ^ binary.NativeEndian.Uint64(b[8:])) * hashMultiplier
	return uint32((h ^ h>>32 ^ binary.NativeEndian.Uint64(b[16:])) * hashMultiplier >> 32)
}

// openAddress lays values out in a hash table with open addressing and linear
// probing, a power of two in size, in which no key is more than
// serviceProbes - 1 slots from where its search begins. A load of at most one
// half makes the first size do almost always; otherwise the table doubles.
func openAddress[K comparable, V, S any](of map[K]V, hash func(K) uint32, slot func(K, V) S) []S {
	for size := powerOfTwo(2 * len(of)); ; size *= 2 {
		if at, ok := placeAll(of, hash, size); ok {
			slots := make([]S, size)
			for index, key := range at {
				slots[index] = slot(key, of[key])
			}
			return slots
		}
	}
}

func placeAll[K comparable, V any](of map[K]V, hash func(K) uint32, size uint32) (map[uint32]K, bool) {
	at := make(map[uint32]K, len(of))
	for key := range of {
		start, placed := hash(key), false
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
