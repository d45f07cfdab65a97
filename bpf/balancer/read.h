/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Parsing of packets that are not plain, or whose header has no length (BIG TCP), for the slow path. Include after one
 * of the ctx_*.h headers. */
#pragma once

#include "readable.h"
#include "scratch.h"
#include "trace.h"

/* read_packet parses a packet of any kind. Scratch: writes packet. */
__noinline int read_packet(ctx_t *ctx, __u32 network, __u32 ipv6)
{
	void *data_end = ctx_data_end(ctx), *header = ctx_data(ctx) + (network & 0xff);
	__u32 buffered = ctx_gso(ctx) ? ctx_length(ctx) - network : 0;
	struct scratch *scratch = get_scratch();
	enum outcome outcome;

	if (!scratch)
		return OUTCOME_DROPPED_NO_BACKEND;
	__builtin_memset(&scratch->packet, 0, sizeof(scratch->packet));
	scratch->packet.network = network;
	outcome = ipv6 ? parse_ipv6(&scratch->packet, header, data_end, buffered, PART_ALL) :
			 parse_ipv4(&scratch->packet, header, data_end, buffered, PART_ALL);
	trace_read(ctx, &scratch->packet);
	return outcome;
}
