/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Replies on the fast path: plain ones in midstream, whose route is mirrored or cached. Others are left to the slow
 * path: OUTCOME_NONE. Include after one of the ctx_*.h headers. */
#pragma once

#include "../count.h"
#include "midstream.h"
#include "revnat.h"
#include "route.h"

/* pass_to_host passes a backend's reply to an application of this host to the kernel. Such a packet has no cached
 * route, so this is tested only when a reply leaves the fast path, and costs other replies nothing. */
static __always_inline enum outcome pass_to_host(void *generation,
						 const struct endpoint *endpoint,
						 const struct packet *packet)
{
	return answers_host(generation, endpoint, packet) ? OUTCOME_PASSED_NOT_FORWARDED :
							    OUTCOME_NONE;
}

/* send_reply_by_route sends a reply by a route; OUTCOME_NONE if the reply must take the slow path. */
static __always_inline enum outcome send_reply_by_route(ctx_t *ctx, const struct packet *packet, bool ipv6,
							const struct endpoint *endpoint,
							const struct translation *to, const void *macs,
							__u32 interface, __u32 *egress)
{
	void *frame = ctx_data(ctx), *header = frame + (packet->network & 0xff);

	if ((interface && !accepts_frames(interface)) ||
	    (is_other_interface(interface) && (ctx_tagged(ctx) || tag_length(packet))) ||
	    frame + sizeof(struct ethhdr) > ctx_data_end(ctx) ||
	    header + sizeof(struct iphdr) > ctx_data_end(ctx) || !has_ttl(header, ipv6))
		return OUTCOME_NONE;
	*egress = interface;
	copy_macs(frame, macs);
	if (translate_as(ctx, packet, to, ipv6) != OUTCOME_NONE)
		return OUTCOME_DROPPED_MALFORMED;
	count_reply(packet, &endpoint->backend, ctx_packets(ctx));
	return OUTCOME_RETURNED;
}

/* reply_from_endpoint sends a backend's reply to its client (mode nat), by a route that is mirrored or cached. A reply
 * that begins or ends a connection is left to the slow path, which counts it or ends its flow, and clamps the MSS of a
 * SYN-ACK, whose route is seldom cached yet. Mirrored and cached routes each have a copy of the sending code: shared,
 * it would need more stack. */
static __always_inline enum outcome reply_from_endpoint(ctx_t *ctx, void *generation,
							const struct packet *packet, bool ipv6,
							__u32 *egress)
{
	enum outcome outcome = OUTCOME_NONE;
	struct endpoint *endpoint;
	struct mirror_hop *hop;
	struct route_entry *entry;
	struct translation to;

	endpoint = endpoint_at(generation, packet,
			       search_endpoint(generation, packet, packet->source_port,
					       packet->protocol));
	if (!endpoint)
		return OUTCOME_NONE;
	if ((packet->tcp_flags & (TCP_SYN | TCP_RST)) ||
	    ((packet->tcp_flags & TCP_FIN) && endpoint->service != NO_SERVICE))
		return pass_to_host(generation, endpoint, packet);
	identity_translation(packet, &to);
	translate_from_vip(endpoint, &to);
	if (!to.exceptions && !to.verify_backend) {
		hop = mirrored(ctx, packet, &to, clock_of(generation), ipv6);
		if (hop) {
			outcome = send_reply_by_route(ctx, packet, ipv6, endpoint, &to, hop->macs,
						      hop->interface == ingress_interface(ctx) ?
						       0 : hop->interface, egress);
			return outcome == OUTCOME_NONE ?
				       pass_to_host(generation, endpoint, packet) : outcome;
		}
	}
	entry = cached_route_of(packet, &to);
	if (!entry || !is_route_valid(ctx, entry, packet, &to, route_stamp(clock_of(generation))))
		return pass_to_host(generation, endpoint, packet);
	outcome = send_reply_by_route(ctx, packet, ipv6, endpoint, &to, entry->macs, entry->egress,
				      egress);
	if (outcome == OUTCOME_NONE)
		return pass_to_host(generation, endpoint, packet);
	entry->left--;
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

/* reply_on_fast_path forwards a complete packet with ports that is for no service but may be a reply. */
static __always_inline enum outcome reply_on_fast_path(ctx_t *ctx, void *generation,
						       const struct packet *packet, bool ipv6,
						       __u32 *egress)
{
	__u32 at = midstream_at(packet->network, ipv6);

	/* A full-NAT flow's replies are looked up by their 5-tuple, and not by their source. */
	if (has_mode(MODE_FULLNAT) && has_pool_port(packet))
		return changes_flow(packet) ? OUTCOME_NONE : return_from_pool(ctx, at, egress);
	if (!has_mode(MODE_NAT))
		return OUTCOME_NONE;
	return CTX_SHORTCUT || !ipv6 ? reply_from_endpoint(ctx, generation, packet, ipv6, egress) :
				      return_from_endpoint(ctx, at, egress);
}
