/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The hash of a flow. It has no secret: balancers that share a VIP must agree
 * on it. */
#pragma once

#include <stdbool.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* 2^64 divided by the golden ratio (Knuth, TAOCP 3, section 6.4). */
#define HASH_MULTIPLIER 0x9e3779b97f4a7c15ULL
/* More odd multipliers, for hashes of several words: each word has a multiplier of its own, so that the products do not
 * wait for each other (multilinear hashing: D. Lemire and O. Kaser, "Strongly universal string hashing is fast", 2014).
 * Two primes of xxHash. */
#define HASH_MULTIPLIER2 0xc2b2ae3d27d4eb4fULL
#define HASH_MULTIPLIER3 0x165667b19e3779f9ULL
#define HASH_MULTIPLIER4 0x27d4eb2f165667c5ULL
#define HASH_MULTIPLIER5 0x85ebca77c2b2ae63ULL

/* hash_mix moves about half of the 32 high bits of its result for each bit of
 * the input: the multiply, xor-shift, multiply of MurmurHash3's finalizer
 * (A. Appleby, fmix64), without the steps that only the low bits need. */
static __always_inline __u64 hash_mix(__u64 h)
{
	h *= 0xff51afd7ed558ccdULL;
	h ^= h >> 32;
	return h * 0xc4ceb9fe1a85ec53ULL;
}

/* hash_client spreads flows over 32 bits by the client's address, in its first and its last 8 bytes, and a port. A
 * service's VIP, port and protocol need not be hashed: its table has only its own flows. */
static __always_inline __u32 hash_client(__u64 first, __u64 last, __be16 port, bool ipv6)
{
	__u64 h = (__u64)port << 32;

	if (ipv6)
		h += first * HASH_MULTIPLIER + last * HASH_MULTIPLIER2;
	else
		h |= first;
	return hash_mix(h) >> 32;
}

/* hash_scale maps a hash onto 0..size-1 without a division (D. Lemire, "Fast
 * random integer generation in an interval", 2019, section 3). */
static __always_inline __u32 hash_scale(__u32 hash, __u32 size)
{
	return ((__u64)hash * size) >> 32;
}
