// SPDX-License-Identifier: Apache-2.0

package mapmem

// The multipliers of bpf/lib/hash.h.
const (
	HashMultiplier  = 0x9e3779b97f4a7c15
	HashMultiplier2 = 0xc2b2ae3d27d4eb4f
	HashMultiplier3 = 0x165667b19e3779f9
	HashMultiplier4 = 0x27d4eb2f165667c5
	HashMultiplier5 = 0x85ebca77c2b2ae63
)

// HashMix is hash_mix of bpf/lib/hash.h.
func HashMix(h uint64) uint64 {
	h *= 0xff51afd7ed558ccd
	h ^= h >> 32
	return h * 0xc4ceb9fe1a85ec53
}
