/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Replies on the fast path: plain ones in midstream, whose way is mirrored or known. Others are left to the slow path:
 * OUTCOME_NONE. Include after one of the ctx_*.h headers. */
#pragma once

#include "../count.h"
#include "midstream.h"
#include "returns.h"
#include "route.h"

/* leave_to_host leaves a backend's answer to a program of this host to the kernel. Such a packet has no known way: so
 * this is asked only where the fast path ends for a reply, and costs the others nothing. */
static __always_inline enum outcome leave_to_host(void *generation,
						  const struct endpoint *endpoint,
						  const struct packet *packet)
{
	return answers_host(generation, endpoint, packet) ? OUTCOME_PASSED_NOT_FORWARDED :
							    OUTCOME_NONE;
}

/* reply_by_way sends a reply by a way, unless it must take the slow path: OUTCOME_NONE. */
static __always_inline enum outcome reply_by_way(ctx_t *ctx, const struct packet *packet, bool ipv6,
						 const struct endpoint *endpoint,
						 const struct translation *to, const void *macs,
						 __u32 interface, __u32 *egress)
{
	void *frame = ctx_data(ctx), *header = frame + (packet->network & 0xff);

	if ((interface && !takes(interface)) ||
	    (leaves(interface) && (ctx_tagged(ctx) || tag_length(packet))) ||
	    frame + sizeof(struct ethhdr) > ctx_data_end(ctx) ||
	    header + sizeof(struct iphdr) > ctx_data_end(ctx) || !has_hops(header, ipv6))
		return OUTCOME_NONE;
	*egress = interface;
	copy_macs(frame, macs);
	if (translate_as(ctx, packet, to, ipv6) != OUTCOME_NONE)
		return OUTCOME_DROPPED_MALFORMED;
	count_reply(packet, &endpoint->backend, ctx_packets(ctx));
	return OUTCOME_RETURNED;
}

/* reply_from_endpoint sends a backend's reply to its client (mode nat), by a way that is mirrored or known. A reply
 * that begins or ends a connection is left to the slow path, which counts it or ends its flow, and lowers the MSS of a
 * SYN-ACK, whose way is seldom known yet. Both ways have a copy of the code that sends: shared, it would need more of
 * the stack. */
static __always_inline enum outcome reply_from_endpoint(ctx_t *ctx, void *generation,
							const struct packet *packet, bool ipv6,
							__u32 *egress)
{
	enum outcome outcome = OUTCOME_NONE;
	struct endpoint *endpoint;
	struct mirror_hop *hop;
	struct known_way *known;
	struct translation to;

	endpoint = endpoint_at(generation, packet,
			       search_endpoint(generation, packet, packet->source_port,
					       packet->protocol));
	if (!endpoint)
		return OUTCOME_NONE;
	if ((packet->tcp_flags & (TCP_SYN | TCP_RST)) ||
	    ((packet->tcp_flags & TCP_FIN) && endpoint->service != NO_SERVICE))
		return leave_to_host(generation, endpoint, packet);
	unchanged(packet, &to);
	from_vip(endpoint, &to);
	if (!to.exceptions && !to.asked_of) {
		hop = mirrored(ctx, packet, &to, clock_of(generation), ipv6);
		if (hop) {
			outcome = reply_by_way(ctx, packet, ipv6, endpoint, &to, hop->macs,
					       hop->interface == ctx_interface(ctx) ?
						       0 : hop->interface, egress);
			return outcome == OUTCOME_NONE ?
				       leave_to_host(generation, endpoint, packet) : outcome;
		}
	}
	known = way_of(packet, &to);
	if (!known || !knows(ctx, known, packet, &to, way_stamp(clock_of(generation))))
		return leave_to_host(generation, endpoint, packet);
	outcome = reply_by_way(ctx, packet, ipv6, endpoint, &to, known->macs, known->egress,
			       egress);
	if (outcome == OUTCOME_NONE)
		return leave_to_host(generation, endpoint, packet);
	known->left--;
	return outcome;
}

/* return_from_endpoint is reply_from_endpoint() for IPv6 where it would not fit the stack of the fast
 * path. `at` is midstream_at(). */
__noinline int return_from_endpoint(ctx_t *ctx, __u32 at, __u32 *egress)
{
	struct packet packet = {};

	if (!egress || !parse_midstream(ctx, at >> 1, true, &packet))
		return OUTCOME_NONE;
	return reply_from_endpoint(ctx, current_generation(), &packet, true, egress);
}

/* reply_on_fast_path sends on a packet, whole and with ports, that is for no service and may be a reply. */
static __always_inline enum outcome reply_on_fast_path(ctx_t *ctx, void *generation,
						       const struct packet *packet, bool ipv6,
						       __u32 *egress)
{
	__u32 at = midstream_at(packet->network, ipv6);

	/* A full-NAT flow's replies are not found by their source. */
	if (has_mode(MODE_FULLNAT) && has_pool_port(packet))
		return changes_flow(packet) ? OUTCOME_NONE : return_from_pool(ctx, at, egress);
	if (!has_mode(MODE_NAT))
		return OUTCOME_NONE;
	return CTX_SHORTCUT || !ipv6 ? reply_from_endpoint(ctx, generation, packet, ipv6, egress) :
				      return_from_endpoint(ctx, at, egress);
}
