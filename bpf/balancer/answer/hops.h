/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TTL and hop limit. Every mode but l2dsr decrements them, so that a packet in a loop ends: a router's duty (RFC 1812
 * section 5.3.1), and a tunnel's entry point's (RFC 2003 section 3.1, RFC 2473 section 3.1). */
#pragma once

#include "answer.h"
#include "../link.h"

/* has_hops says whether the packet behind an IP header, of which 20 bytes can be read, may
 * travel farther. */
static __always_inline bool has_hops(const void *header, bool ipv6)
{
	return *(const __u8 *)(header + (ipv6 ? offsetof(struct ipv6hdr, hop_limit) :
						offsetof(struct iphdr, ttl))) > 1;
}

/* may_travel is has_hops of the packet in a frame. */
static __always_inline bool may_travel(ctx_t *ctx, const struct packet *packet)
{
	void *header = ctx_data(ctx) + (packet->network & 0xff);

	return header + sizeof(struct iphdr) <= ctx_data_end(ctx) &&
	       has_hops(header, packet->ipv6);
}

/* count_hop decrements the TTL or hop limit, where nothing else of the header changes. */
static __always_inline void count_hop(ctx_t *ctx, const struct packet *packet)
{
	void *header = ctx_data(ctx) + (packet->network & 0xff);
	struct ipv6hdr *six = header;
	struct iphdr *four = header;

	if (header + sizeof(struct iphdr) > ctx_data_end(ctx))
		return;
	if (packet->ipv6) {
		((__u8 *)six)[offsetof(struct ipv6hdr, hop_limit)]--;
		return;
	}
	four->ttl--;
	four->check = checksum_fix(four->check, HOP_CHANGE);
}

/* time_exceeded_from asks for the ICMP error that says so (RFC 792, RFC 4443 section 3.3), to be sent from an address
 * of ours: answer_icmp() answers from the packet's destination, and a reply's destination is its client. Scratch: takes
 * packet; leaves the address as its destination. */
static __always_inline enum outcome time_exceeded_from(const __be32 *address)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return OUTCOME_DROPPED_TIME_EXCEEDED;
	__builtin_memmove(scratch->packet.destination, address,
			  sizeof(scratch->packet.destination));
	return OUTCOME_TIME_EXCEEDED;
}

/* answer_time_exceeded makes that answer when nothing else is left to do. Scratch: takes
 * packet. */
static __always_inline enum outcome answer_time_exceeded(ctx_t *ctx)
{
	struct scratch *scratch = get_scratch();
	bool ipv6 = scratch && scratch->packet.ipv6;

	if (!answer_icmp(ctx, ipv6 ? ICMP_ERROR(ICMPV6_TIME_EXCEED, 0) :
				     ICMP_ERROR(ICMP_TIME_EXCEEDED, 0), 0))
		return OUTCOME_DROPPED_TIME_EXCEEDED;
	return OUTCOME_ANSWERED_TIME_EXCEEDED;
}
