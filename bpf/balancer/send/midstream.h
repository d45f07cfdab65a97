/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets of full NAT in midstream, in both directions, sent on the ingress link or by a mirrored route. Each is a
 * function by itself: inlined, it would not fit the stack of the fast path. Other packets it leaves unchanged to the
 * slow path, which also records the reasons. Include after one of the ctx_*.h headers. */
#pragma once

#include "forward.h"
#include "revnat.h"
#include "../select/fastpath.h"
#include "../count.h"

/* midstream_at packs the offset of a plain packet's IP header in the frame, in bytes, and its family. */
static __always_inline __u32 midstream_at(__u32 network, bool ipv6)
{
	return network << 1 | ipv6;
}

/* parse_midstream reads a plain packet once more; false if it has changed, which cannot happen. */
static __always_inline bool parse_midstream(ctx_t *ctx, __u32 network, bool ipv6,
					    struct packet *packet)
{
	void *header = ctx_data(ctx) + (network & 0xff), *data_end = ctx_data_end(ctx);

	packet->network = network;
	if (ipv6)
		return is_plain6(header, data_end) &&
		       parse_plain6(packet, header, data_end) == OUTCOME_NONE;
	return is_plain4(header, data_end) &&
	       parse_plain4(packet, header, data_end) == OUTCOME_NONE;
}

/* sends_midstream reports whether a packet is in midstream of a full-NAT flow, to a backend on the link that it came in
 * on. */
static __always_inline bool sends_midstream(const struct decision *decision,
					    const struct flow *flow)
{
	return flow && decision->mode == MODE_FULLNAT && has_mode(MODE_FULLNAT) &&
	       !is_other_interface(decision->backend->interface);
}

/* send_from_pool_as is inlined for each family. */
static __always_inline enum outcome send_from_pool_as(ctx_t *ctx, const struct flow *flow,
						      struct backend *backend, __u32 network,
						      bool ipv6)
{
	struct decision decision = { .backend = backend, .mode = MODE_FULLNAT };
	struct packet packet = {};
	struct translation to;
	__u32 index;

	if (!parse_midstream(ctx, network, ipv6, &packet) || !ttl_remains(ctx, &packet) ||
	    too_big(ctx, &packet, &decision, 0))
		return OUTCOME_NONE;
	identity_translation(&packet, &to);
	if (!set_pool_source(current_generation(), backend, &flow->source, &to))
		return OUTCOME_NONE;
	set_destination(&decision, &to);
	if (translate_as(ctx, &packet, &to, ipv6) != OUTCOME_NONE)
		return OUTCOME_DROPPED_MALFORMED;
	if (rewrite_macs(ctx, &packet, backend, 0))
		return OUTCOME_DROPPED_NO_ROOM;
	/* Linux 6.1 does not accept a map key in memory that the caller has passed. */
	index = backend->index;
	count_sent(&packet, &index, false, ctx_packets(ctx));
	return OUTCOME_FORWARDED;
}

/* send_from_pool sends a packet of a known flow to its backend on the link that the packet came in
 * on, and counts it: OUTCOME_NONE, and nothing is written, where it needs more. `at` is
 * midstream_at(). */
__noinline int send_from_pool(ctx_t *ctx, const struct flow *flow, struct backend *backend,
			      __u32 at)
{
	if (!flow || !backend)
		return OUTCOME_NONE;
	return at & 1 ? send_from_pool_as(ctx, flow, backend, at >> 1, true) :
			send_from_pool_as(ctx, flow, backend, at >> 1, false);
}

/* return_from_pool_as is inlined for each family. */
static __always_inline enum outcome return_from_pool_as(ctx_t *ctx, __u32 network, bool ipv6,
							__u32 *egress)
{
	void *generation = current_generation();
	struct decision decision = {};
	struct packet packet = {};
	struct route route = {};
	struct translation to;
	enum outcome outcome;
	__u32 place;

	if (!parse_midstream(ctx, network, ipv6, &packet) || !is_pool(generation, &packet))
		return OUTCOME_NONE;
	identity_translation(&packet, &to);
	place = find_return(&packet, hash_return(&packet), 0);
	if (!place || !return_fullnat(generation, place, &decision, &to) ||
	    !ttl_remains(ctx, &packet) ||
	    !lookup_mirror(ctx, &packet, &to, clock_of(generation), &route))
		return OUTCOME_NONE;
	note_fullnat(generation, place, &packet);
	if (translate_as(ctx, &packet, &to, ipv6) != OUTCOME_NONE)
		return OUTCOME_DROPPED_MALFORMED;
	outcome = send_by_route(ctx, &packet, &decision, ROUTE_FOUND, &route);
	*egress = decision.egress;
	if (outcome == OUTCOME_RETURNED)
		count_returned(&packet, &decision, ctx_packets(ctx));
	return outcome;
}

/* return_from_pool sends a reply to its client, and counts it, where its route is mirrored:
 * OUTCOME_NONE, and nothing is written, where it needs more. `at` is midstream_at(). */
__noinline int return_from_pool(ctx_t *ctx, __u32 at, __u32 *egress)
{
	if (!egress)
		return OUTCOME_NONE;
	return at & 1 ? return_from_pool_as(ctx, at >> 1, true, egress) :
			return_from_pool_as(ctx, at >> 1, false, egress);
}
