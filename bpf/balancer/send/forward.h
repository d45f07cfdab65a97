/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rewrites packets to backends, and backends' replies to clients. */
#pragma once

#include "fullnat.h"
#include "../answer/ttl.h"
#include "../link.h"
#include "../segment.h"
#include "mss.h"
#include "route.h"
#include "../answer/toobig.h"
#include "translate.h"
#include "tunnel.h"

/* set_destination sets a packet's destination in the modes that rewrite addresses: the backend's address, with its
 * port, or by mode dscp with the TOS. Full NAT's source is set already. */
static __always_inline void set_destination(const struct decision *decision, struct translation *to)
{
	const struct backend *backend = decision->backend;

	if (decision->mode == MODE_DSCP)
		to->tos = decision->tos | (to->tos & 3);
	else
		to->destination_port = backend->port;
	__builtin_memcpy(to->destination, backend->address, sizeof(to->destination));
}

/* overhead returns the length of the tunnel headers of a packet to a backend, in bytes. */
static __always_inline __u32 overhead(const struct decision *decision)
{
	if ((has_mode(MODE_IPIP) && decision->mode == MODE_IPIP) ||
	    (has_mode(MODE_GUE) && decision->mode == MODE_GUE))
		return tunnel_overhead(decision->mode, decision->backend);
	return 0;
}

/* too_big reports whether a packet exceeds the path MTU to its backend. The kernel takes the length of a tunnel's
 * headers off the payload of TCP segments (bpf_skb_adjust_room): they stay as long as they were received. */
static __always_inline bool too_big(ctx_t *ctx, const struct packet *packet,
				    const struct decision *decision, __u32 grows)
{
	__u32 segment;

	if (packet->length + grows <= decision->backend->mtu)
		return false;
	segment = segment_length(ctx, packet);
	if (packet->protocol == IPPROTO_TCP && segment < packet->length)
		grows = 0;
	return segment + grows > decision->backend->mtu;
}

/* forward_inline sends a packet to its backend, in any mode. `may_open`: it may be a
 * SYN. */
static __always_inline enum outcome forward_inline(ctx_t *ctx, const struct packet *packet,
						   struct decision *decision,
						   const struct translation *to, bool may_open)
{
	const struct backend *backend = decision->backend;
	bool rewrites = has_rewrites() && decision->mode != MODE_L2DSR;
	__u32 grows = overhead(decision);
	enum outcome outcome;

	if (rewrites) {
		if (!ttl_remains(ctx, packet))
			return time_exceeded_from(packet->destination);
		if (too_big(ctx, packet, decision, grows)) {
			/* The backend went down meanwhile, and no longer has a path. */
			if (!backend->mtu)
				return OUTCOME_DROPPED_BACKEND_DOWN;
			return too_big_for(backend->mtu - grows);
		}
	}
	decision->egress = backend->interface;
	if (may_open && decision->mss && (packet->tcp_flags & TCP_SYN))
		clamp_mss(ctx, packet, decision->mss);
	if (grows) {
		decrement_ttl(ctx, packet);
		return encapsulate(ctx, packet, backend, decision->mode, decision->hash);
	}
	if (rewrites) {
		outcome = translate_inline(ctx, packet, to);
		if (outcome != OUTCOME_NONE)
			return outcome;
	}
	if (rewrite_macs(ctx, packet, backend, backend->interface))
		return OUTCOME_DROPPED_NO_ROOM;
	return OUTCOME_FORWARDED;
}

/* forward is forward_inline() off the fast path, for packets that do not begin with a TCP header. */
static __noinline enum outcome forward(ctx_t *ctx, const struct packet *packet,
				       struct decision *decision, const struct translation *to)
{
	return forward_inline(ctx, packet, decision, to, false);
}

/* send_by_route sends a rewritten reply by the route that was found. */
static __always_inline enum outcome send_by_route(ctx_t *ctx, const struct packet *packet,
						  struct decision *decision, enum route_result result,
						  const struct route *route)
{
	if (result != ROUTE_FOUND)
		return OUTCOME_PASSED_TO_ROUTE;
	decision->egress = route->interface;
	if (rewrite_macs(ctx, packet, route->macs, route->interface))
		return OUTCOME_DROPPED_NO_ROOM;
	return OUTCOME_RETURNED;
}

/* icmp_source_of returns our source address of ICMP errors to a backend: with full NAT, the reply's destination;
 * otherwise the VIP, to which the reply's source is translated. */
static __always_inline const __be32 *icmp_source_of(const struct packet *packet,
						    const struct decision *decision,
						    const struct translation *to)
{
	return has_mode(MODE_FULLNAT) && decision->mode == MODE_FULLNAT ? packet->destination :
									  to->source;
}

/* non_reply_outcome returns the outcome of a packet from a backend's endpoint that is no reply to a client, and
 * OUTCOME_NONE for a reply. In mode nat without flow entries, only the packet's source is known; a packet that the
 * kernel would not forward belongs to this host's own connection to the backend. In full NAT the flow is known. */
static __always_inline enum outcome non_reply_outcome(enum route_result result, const struct decision *decision)
{
	if (result == ROUTE_UNTRANSLATED)
		return OUTCOME_PASSED_UNTRANSLATED;
	if (result == ROUTE_NO_FLOW)
		return OUTCOME_PASSED_NO_FLOW;
	return result == ROUTE_NOT_FORWARDED && decision->mode != MODE_FULLNAT ?
		       OUTCOME_PASSED_NOT_FORWARDED : OUTCOME_NONE;
}

/* is_non_reply reports whether an outcome is one of non_reply_outcome(). */
static __always_inline bool is_non_reply(enum outcome outcome)
{
	return outcome == OUTCOME_PASSED_NOT_FORWARDED ||
	       outcome == OUTCOME_PASSED_UNTRANSLATED || outcome == OUTCOME_PASSED_NO_FLOW;
}

/* reply_trace_reason returns the trace reason of a packet from a backend. */
static __always_inline enum trace_reason reply_trace_reason(enum outcome outcome)
{
	return is_non_reply(outcome) ? TRACE_FROM_BACKEND : TRACE_REPLY;
}

/* send_back_inline sends a reply to its client, whose address and ours are in *to. `verify`: the packet may not be a
 * reply. */
static __always_inline enum outcome send_back_inline(ctx_t *ctx, const struct packet *packet,
						     struct decision *decision,
						     struct translation *to, bool verify)
{
	struct route route = {};
	enum outcome outcome;
	enum route_result result = find_route_inline(ctx, packet, to, &route, verify, true);

	if (result == ROUTE_NONE)
		return OUTCOME_DROPPED_NO_ROUTE;
	outcome = non_reply_outcome(result, decision);
	if (outcome != OUTCOME_NONE)
		return outcome;
	if (result != ROUTE_KERNEL && result != ROUTE_NOT_FORWARDED && !ttl_remains(ctx, packet))
		return time_exceeded_from(icmp_source_of(packet, decision, to));
	if (result == ROUTE_TOO_BIG && (packet->ipv6 || packet->dont_fragment))
		return too_big_for(route.mtu);
	to->ttl_decrement = result == ROUTE_FOUND;
	if (decision->mss && (packet->tcp_flags & TCP_SYN))
		clamp_mss(ctx, packet, decision->mss);
	outcome = translate_inline(ctx, packet, to);
	if (outcome != OUTCOME_NONE)
		return outcome;
	return send_by_route(ctx, packet, decision, result, &route);
}

/* send_back is send_back_inline() off the fast path, for a packet that is known to be a reply. */
static __noinline enum outcome send_back(ctx_t *ctx, const struct packet *packet,
					 struct decision *decision, struct translation *to)
{
	return send_back_inline(ctx, packet, decision, to, false);
}
