/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The routes of replies, which the control plane mirrors from the kernel. A lookup here has the same result as
 * bpf_fib_lookup, or none, where that is needed. */
#pragma once

#include "../hash.h"
#include "../link.h"
#include "../scratch.h"
#include "../segment.h"

/* reply_routes_of returns the mirror's head. */
static __always_inline struct mirror *reply_routes_of(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&reply_routes, &zero);
}

/* has_lease reports whether the control plane still updates the mirror: its clock, struct head, has moved within
 * MIRROR_LEASE jiffies. That takes two readings of the clock within that time; so after a while without replies,
 * bpf_fib_lookup is used until the clock moves again. Otherwise the first reply would use the routes of a control plane
 * that was killed long ago. */
static __always_inline bool has_lease(struct mirror *routes, __u32 now)
{
	__u64 lease = routes->lease;
	__u32 ticks = (__u32)bpf_jiffies64() << 1;
	bool recent = ticks - ((__u32)lease & ~1U) < MIRROR_LEASE << 1;

	if (__builtin_expect(lease >> 32 == now, 1))
		return (lease & 1) && recent;
	__sync_val_compare_and_swap(&routes->lease, lease, (__u64)now << 32 | ticks | recent);
	return false;
}

/* hop_number6 returns the number of the next hop to an IPv6 /64, given the number for its first 16 bits; 0 if
 * bpf_fib_lookup is needed. */
static __always_inline __u32 hop_number6(struct mirror *routes, __u64 network, __u32 number)
{
	struct mirror_net *net;

	if (!(number & MIRROR_EXACT))
		return number;
	net = &routes->nets[hash_mix(network * HASH_MULTIPLIER) >> 32 & (MIRROR_NETS - 1)];
	if (net->crowded)
		return 0;
	return net->key == network ? net->hop : number & (MIRROR_HOPS - 1);
}

/* mirrored_hop returns the next hop to a destination, which is given by its mirrored_key(), or NULL where
 * bpf_fib_lookup is needed: also once in each tick of the clock for each next hop, so that its use is recorded
 * (note_reply_hop()). It is not inlined, because it would leave too little stack. */
static __noinline struct mirror_hop *mirrored_hop(__u64 key, __u32 now, bool ipv6)
{
	struct mirror *routes = reply_routes_of();
	__u32 group = bpf_ntohs((__u16)key), at, number;
	struct mirror_block *block;
	struct mirror_hop *hop;

	if (!routes || !(routes->state & (ipv6 ? MIRROR_IPV6 : MIRROR_IPV4)) ||
	    !has_lease(routes, now))
		return NULL;
	at = (ipv6 ? MIRROR_BLOCKS : 0) + group / MIRROR_BLOCK;
	block = bpf_map_lookup_elem(&reply_blocks, &at);
	if (!block)
		return NULL;
	number = block->hops[group & (MIRROR_BLOCK - 1)];
	if (ipv6)
		number = hop_number6(routes, key, number);
	number &= MIRROR_HOPS - 1;
	if (!number)
		return NULL;
	hop = &routes->hops[number];
	if (hop->seen == now)
		return hop;
	hop->seen = now;
	return NULL;
}

/* mirrored_key returns the part of a destination that selects its route in the mirror: of IPv6, the first half. */
static __always_inline __u64 mirrored_key(const __be32 *destination, bool ipv6)
{
	return ipv6 ? (__u64)destination[1] << 32 | destination[0] : destination[0];
}

/* mirrored returns the next hop of a reply, or NULL where bpf_fib_lookup is needed. */
static __always_inline struct mirror_hop *mirrored(ctx_t *ctx, const struct packet *packet,
						   const struct translation *to, __u32 now,
						   bool ipv6)
{
	struct mirror_hop *hop;

	if (dry_run())
		return NULL;
	hop = mirrored_hop(mirrored_key(to->destination, ipv6), now, ipv6);
	if (hop && packet->length > hop->mtu && segment_length(ctx, packet) > hop->mtu)
		return NULL;
	return hop;
}
