/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The size of packets on the wire, where a frame stands for several (GSO). Include after a ctx_*.h header. */
#pragma once

#include "parse.h"

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
	return headers + payload < packet->length ? headers + payload : packet->length;
}
