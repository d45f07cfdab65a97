/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The size of packets on the wire, where a frame stands for several (GSO). Include after a ctx_*.h header. */
#pragma once

#include "parse.h"

/* JUMBO_HEADER is the length of the hop-by-hop header (RFC 2675) that Linux inserts into an IPv6 packet that is too
 * long for the header's field (BIG TCP), and removes before it is sent. */
#define JUMBO_HEADER 8

/* has_jumbo_header reports whether a packet has that header. Some releases of Linux insert none. */
static __always_inline bool has_jumbo_header(const struct packet *packet)
{
	return packet->ipv6 && packet->length > sizeof(struct ipv6hdr) + 0xffff &&
	       packet->transport > sizeof(struct ipv6hdr);
}

/* segment_length returns the length of the largest IP packet on the wire that a frame stands for: of the segments of a
 * GSO packet, each of which repeats its headers, or of the packet itself. */
static __always_inline __u32 segment_length(ctx_t *ctx, const struct packet *packet)
{
	__u32 payload = ctx_gso(ctx), headers = packet->transport + sizeof(struct udphdr);

	if (!payload)
		return packet->length;
	if (packet->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = ctx_data(ctx) + (packet->network & 0xff) + (packet->transport & OFFSET_MASK);

		if ((void *)(tcp + 1) > ctx_data_end(ctx))
			return packet->length;
		headers = packet->transport + tcp->doff * 4;
	}
	if (has_jumbo_header(packet))
		headers -= JUMBO_HEADER;
	return headers + payload < packet->length ? headers + payload : packet->length;
}
