/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rewrites packets on their way to a backend, and on their way back. */
#pragma once

#include "fullnat.h"
#include "../answer/hops.h"
#include "../link.h"
#include "mss.h"
#include "route.h"
#include "../answer/toobig.h"
#include "translate.h"
#include "tunnel.h"

/* aim sets a packet's destination in the modes that rewrite addresses: the backend's address, with its port, or by mode
 * dscp with the TOS. Full NAT's source is there already. */
static __always_inline void aim(const struct decision *decision, struct translation *to)
{
	const struct backend *backend = decision->backend;

	if (decision->mode == MODE_DSCP)
		to->tos = decision->tos | (to->tos & 3);
	else
		to->destination_port = backend->port;
	__builtin_memcpy(to->destination, backend->address, sizeof(to->destination));
}

/* overhead is the length of the tunnel headers that a packet to a backend gets, in bytes. */
static __always_inline __u32 overhead(const struct decision *decision)
{
	if ((has_mode(MODE_IPIP) && decision->mode == MODE_IPIP) ||
	    (has_mode(MODE_GUE) && decision->mode == MODE_GUE))
		return tunnel_overhead(decision->mode, decision->backend);
	return 0;
}

/* too_big says whether a packet does not fit the way to its backend. The segments
 * of a TCP packet that the kernel has yet to cut become as small as the tunnel
 * needs. */
static __always_inline bool too_big(ctx_t *ctx, const struct packet *packet,
				    const struct decision *decision, __u32 grows)
{
	__u32 length = packet->length, headers = packet->transport;

	if (length + grows <= decision->backend->mtu)
		return false;
	if (packet->protocol == IPPROTO_TCP) {
		if (grows && ctx_packets(ctx) > 1)
			return false;
		headers += sizeof(struct tcphdr);
	} else {
		headers += sizeof(struct udphdr);
	}
	return ctx_segment(ctx, length, headers) + grows > decision->backend->mtu;
}

/* deliver_inline sends a packet to its backend, in any mode. `may_open`: it may be a
 * SYN. */
static __always_inline enum outcome deliver_inline(ctx_t *ctx, const struct packet *packet,
						   struct decision *decision,
						   const struct translation *to, bool may_open)
{
	const struct backend *backend = decision->backend;
	bool rewrites = has_rewrites() && decision->mode != MODE_L2DSR;
	__u32 grows = overhead(decision);
	enum outcome outcome;

	if (rewrites) {
		if (!may_travel(ctx, packet))
			return time_exceeded_from(packet->destination);
		if (too_big(ctx, packet, decision, grows)) {
			/* It went down meanwhile, and its row lost the path to it. */
			if (!backend->mtu)
				return OUTCOME_DROPPED_BACKEND_DOWN;
			return too_big_for(backend->mtu - grows);
		}
	}
	decision->egress = backend->interface;
	if (may_open && decision->mss && (packet->tcp_flags & TCP_SYN))
		clamp_mss(ctx, packet, decision->mss);
	if (grows) {
		count_hop(ctx, packet);
		return encapsulate(ctx, packet, backend, decision->mode, decision->hash);
	}
	if (rewrites) {
		outcome = translate_inline(ctx, packet, to);
		if (outcome != OUTCOME_NONE)
			return outcome;
	}
	if (readdress(ctx, packet, backend, backend->interface))
		return OUTCOME_DROPPED_NO_ROOM;
	return OUTCOME_FORWARDED;
}

/* deliver is the same off the fast path, for packets that do not begin with a TCP header. */
static __noinline enum outcome deliver(ctx_t *ctx, const struct packet *packet,
				       struct decision *decision, const struct translation *to)
{
	return deliver_inline(ctx, packet, decision, to, false);
}

/* leave_by sends a rewritten reply by the way that was found. */
static __always_inline enum outcome leave_by(ctx_t *ctx, const struct packet *packet,
					     struct decision *decision, enum way way,
					     const struct route *route)
{
	if (way != WAY_FOUND)
		return OUTCOME_PASSED_TO_ROUTE;
	decision->egress = route->interface;
	if (readdress(ctx, packet, route->macs, route->interface))
		return OUTCOME_DROPPED_NO_ROOM;
	return OUTCOME_RETURNED;
}

/* answerer_of is the address of ours that ICMP errors to a backend come from: full NAT's, which the reply is for, or
 * else the VIP, to which its source is translated. */
static __always_inline const __be32 *answerer_of(const struct packet *packet,
						 const struct decision *decision,
						 const struct translation *to)
{
	return has_mode(MODE_FULLNAT) && decision->mode == MODE_FULLNAT ? packet->destination :
									  to->source;
}

/* no_reply returns the outcome of a packet from a backend's endpoint that is no reply to a client, and OUTCOME_NONE for
 * a reply. By mode nat, of a service without flow entries, only the packet's source is known; one that the kernel would
 * not forward answers this host's own connection to the backend. By full NAT the flow is known. */
static __always_inline enum outcome no_reply(enum way way, const struct decision *decision)
{
	if (way == WAY_UNTRANSLATED)
		return OUTCOME_PASSED_UNTRANSLATED;
	if (way == WAY_NO_FLOW)
		return OUTCOME_PASSED_NO_FLOW;
	return way == WAY_NOT_FORWARDED && decision->mode != MODE_FULLNAT ?
		       OUTCOME_PASSED_NOT_FORWARDED : OUTCOME_NONE;
}

/* is_left_alone says whether an outcome is one of no_reply(). */
static __always_inline bool is_left_alone(enum outcome outcome)
{
	return outcome == OUTCOME_PASSED_NOT_FORWARDED ||
	       outcome == OUTCOME_PASSED_UNTRANSLATED || outcome == OUTCOME_PASSED_NO_FLOW;
}

/* came_as is the reason that a trace has for a packet from a backend. */
static __always_inline enum trace_reason came_as(enum outcome outcome)
{
	return is_left_alone(outcome) ? TRACE_FROM_BACKEND : TRACE_REPLY;
}

/* send_back_inline sends a reply to its client, whose address and ours are in *to. `doubts`:
 * it may be none. */
static __always_inline enum outcome send_back_inline(ctx_t *ctx, const struct packet *packet,
						     struct decision *decision,
						     struct translation *to, bool doubts)
{
	struct route route = {};
	enum outcome outcome;
	enum way way = find_route_inline(ctx, packet, to, &route, doubts, true);

	if (way == WAY_NONE)
		return OUTCOME_DROPPED_NO_ROUTE;
	outcome = no_reply(way, decision);
	if (outcome != OUTCOME_NONE)
		return outcome;
	if (way != WAY_KERNEL && way != WAY_NOT_FORWARDED && !may_travel(ctx, packet))
		return time_exceeded_from(answerer_of(packet, decision, to));
	if (way == WAY_TOO_BIG && (packet->ipv6 || packet->whole_only))
		return too_big_for(route.mtu);
	to->hops = way == WAY_FOUND;
	if (decision->mss && (packet->tcp_flags & TCP_SYN))
		clamp_mss(ctx, packet, decision->mss);
	outcome = translate_inline(ctx, packet, to);
	if (outcome != OUTCOME_NONE)
		return outcome;
	return leave_by(ctx, packet, decision, way, &route);
}

/* send_back is the same off the fast path, for a packet that is known to be a reply. */
static __noinline enum outcome send_back(ctx_t *ctx, const struct packet *packet,
					 struct decision *decision, struct translation *to)
{
	return send_back_inline(ctx, packet, decision, to, false);
}
