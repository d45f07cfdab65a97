/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The hash of a flow. It has no secret: balancers that share a VIP must agree
 * on it. */
#pragma once

#include "parse.h"

/* hash_mix is one round of the finalizer of MurmurHash3 (A. Appleby, fmix64):
 * each bit of the input moves about half of the bits of the output. */
static __always_inline __u64 hash_mix(__u64 h)
{
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdULL;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ULL;
	h ^= h >> 33;
	return h;
}

/* hash_flow spreads flows over 32 bits by their 5-tuple. A service's VIP,
 * port and protocol need not go in: its table has only flows of its own. */
static __always_inline __u32 hash_flow(const struct packet *packet)
{
	__u64 h = (__u64)packet->source_port << 32;

	if (packet->ipv6) {
		h ^= hash_mix(((__u64)packet->source[3] << 32) | packet->source[2]);
		h = hash_mix(h) ^ (((__u64)packet->source[1] << 32) | packet->source[0]);
	} else {
		h |= packet->source[0];
	}
	return hash_mix(h) >> 32;
}

/* hash_scale maps a hash onto 0..size-1 without a division (D. Lemire, "Fast
 * random integer generation in an interval", 2019, section 3). */
static __always_inline __u32 hash_scale(__u32 hash, __u32 size)
{
	return ((__u64)hash * size) >> 32;
}
