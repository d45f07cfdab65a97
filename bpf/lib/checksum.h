/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Internet checksum (RFC 1071), and its incremental correction (RFC 1624). A change is a sum of 16- or 32-bit words
 * as they lie in the packet, the new ones and the complements of the old; it is kept in 64 bits, into which a packet's
 * worth of words fits without a carry getting lost. */
#pragma once

#include <stdbool.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

static __always_inline __u32 checksum_fold32(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (sum & 0xffffffff) + (sum >> 32);
}

static __always_inline __u16 checksum_fold(__u64 sum)
{
	__u32 folded = checksum_fold32(sum);

	folded = (folded & 0xffff) + (folded >> 16);
	return (folded & 0xffff) + (folded >> 16);
}

/* checksum_fix returns a checksum after a change (RFC 1624, equation 3). */
static __always_inline __u16 checksum_fix(__u16 check, __u64 change)
{
	return ~checksum_fold((__u16)~check + change);
}

/* TTL_CHANGE is the change of an IPv4 header whose TTL, the upper byte of a 16-bit word, is decremented: the same for
 * every TTL (RFC 1624, section 4). */
#define TTL_CHANGE ((__u16)~bpf_htons(0x0100))

/* SAME reports whether the compiler knows that two values are equal. */
#define SAME(a, b) (__builtin_constant_p((a) == (b)) && (a) == (b))

/* checksum_change returns the change of the sum by a 32-bit word; checksum_change16, by a 16-bit word. */
static __always_inline __u64 checksum_change(__u32 from, __u32 to)
{
	if (SAME(from, to))
		return 0;
	return (__u64)(__u32)~from + to;
}

static __always_inline __u64 checksum_change16(__u16 from, __u16 to)
{
	if (SAME(from, to))
		return 0;
	return (__u64)(__u16)~from + to;
}

/* checksum_change_address returns the change of the sum by an address: four words, of which IPv4 uses the first. */
static __always_inline __u64 checksum_change_address(const __be32 *from, const __be32 *to, bool ipv6)
{
	__u64 change = checksum_change(from[0], to[0]);

	if (!ipv6)
		return change;
#pragma unroll
	for (int i = 1; i < 4; i++) {
		/* One word after the other: all at once would not fit the registers, and the stack has little room for spilled
		 * ones. */
		asm volatile("" : "+r"(change)::"memory");
		change += checksum_change(from[i], to[i]);
	}
	return change;
}

/* checksum_write writes a transport checksum again. In UDP a checksum of 0, which means none, stays 0, and a computed 0
 * is written as 0xffff (RFC 768). */
static __always_inline void checksum_write(__u16 *check, __u16 anew, bool udp)
{
	if (udp && !*check)
		return;
	*check = udp && !anew ? 0xffff : anew;
}
