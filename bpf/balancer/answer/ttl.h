/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TTL and hop limit. Every mode but l2dsr decrements them, so that a packet in a loop expires: required of a router
 * (RFC 1812 section 5.3.1), and of a tunnel's entry point (RFC 2003 section 3.1, RFC 2473 section 3.1). */
#pragma once

#include "icmperror.h"
#include "../link.h"

/* has_ttl reports whether the TTL or hop limit of an IP header permits another hop. 20 bytes of the header must be
 * readable. */
static __always_inline bool has_ttl(const void *header, bool ipv6)
{
	return *(const __u8 *)(header + (ipv6 ? offsetof(struct ipv6hdr, hop_limit) :
						offsetof(struct iphdr, ttl))) > 1;
}

/* ttl_remains is has_ttl for the packet in a frame. */
static __always_inline bool ttl_remains(ctx_t *ctx, const struct packet *packet)
{
	void *header = ctx_data(ctx) + (packet->network & 0xff);

	return header + sizeof(struct iphdr) <= ctx_data_end(ctx) &&
	       has_ttl(header, packet->ipv6);
}

/* decrement_ttl decrements the TTL or hop limit, where nothing else of the header changes. */
static __always_inline void decrement_ttl(ctx_t *ctx, const struct packet *packet)
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
	four->check = checksum_fix(four->check, TTL_CHANGE);
}

/* time_exceeded_from requests the ICMP error "time exceeded" (RFC 792, RFC 4443 section 3.3), sent from an address of
 * ours: answer_icmp() answers from the packet's destination, and a reply's destination is its client. Scratch: reads
 * packet; writes the address as its destination. */
static __always_inline enum outcome time_exceeded_from(const __be32 *address)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return OUTCOME_DROPPED_TIME_EXCEEDED;
	__builtin_memmove(scratch->packet.destination, address,
			  sizeof(scratch->packet.destination));
	return OUTCOME_TIME_EXCEEDED;
}

/* answer_time_exceeded makes that answer, as the last step. Scratch: reads packet. */
static __always_inline enum outcome answer_time_exceeded(ctx_t *ctx)
{
	struct scratch *scratch = get_scratch();
	bool ipv6 = scratch && scratch->packet.ipv6;

	if (!answer_icmp(ctx, ipv6 ? ICMP_ERROR(ICMPV6_TIME_EXCEED, 0) :
				     ICMP_ERROR(ICMP_TIME_EXCEEDED, 0), 0))
		return OUTCOME_DROPPED_TIME_EXCEEDED;
	return OUTCOME_ANSWERED_TIME_EXCEEDED;
}
