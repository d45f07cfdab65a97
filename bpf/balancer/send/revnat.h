/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reverse NAT: recognises the replies of backends that come back through us, and translates them. */
#pragma once

#include "translate.h"
#include "../select/lookup.h"
#include "../flow/returntable.h"
#include "../flow/track.h"

/* translate_from_vip translates a reply's source to the VIP and port that its client has sent to. */
static __always_inline void translate_from_vip(const struct endpoint *endpoint, struct translation *to)
{
	__builtin_memcpy(to->source, endpoint->vip, sizeof(to->source));
	to->source_port = endpoint->port;
	to->exceptions = endpoint->exceptions;
	to->verify_backend = endpoint->service == NO_SERVICE ? 0 : endpoint->backend + 1;
}

/* return_nat translates the source of a reply in mode nat to the VIP, by its endpoint. */
static __always_inline bool return_nat(void *generation, struct endpoint *endpoint,
				       struct decision *decision, struct translation *to)
{
	if (!endpoint)
		return false;
	translate_from_vip(endpoint, to);
	decision->mss = endpoint->mss;
	decision->mode = MODE_NAT;
	decision->backend = backend_at(generation, endpoint->backend);
	return decision->backend;
}

/* return_fullnat writes the translation of a full-NAT flow's reply into *to; `place` is the flow's. */
static __always_inline bool return_fullnat(void *generation, __u32 place,
					   struct decision *decision, struct translation *to)
{
	struct flow *flow = flow_at(place);
	struct turn *turn;

	if (!flow)
		return false;
	turn = turn_of(flow->service);
	if (!turn)
		return false;
	__builtin_memcpy(to->source, turn->vip, sizeof(to->source));
	to->source_port = turn->vip_port;
	__builtin_memcpy(to->destination, flow->address, sizeof(to->destination));
	to->destination_port = flow->port;
	decision->mss = turn->mss;
	decision->mode = MODE_FULLNAT;
	decision->backend = backend_at(generation, flow->backend);
	return decision->backend;
}

/* note_fullnat updates a flow by a reply: its expiry, or its end. */
static __always_inline void note_fullnat(void *generation, __u32 place, const struct packet *packet)
{
	struct flow_bucket *bucket = flows_at(place);
	__u32 at = index_of(place & ~RETURN_PROVEN);

	if (!bucket || dry_run())
		return;
	if (!(packet->tcp_flags & (TCP_FIN | TCP_RST))) {
		note_seen(bucket, at, clock_of(generation));
		return;
	}
	note_change(bucket, at, clock_of(generation));
	note_end(bucket, at, packet);
}

/* has_pool_port reports whether a packet's destination port is one of full NAT's pool. */
static __always_inline bool has_pool_port(const struct packet *packet)
{
	__u16 port = bpf_ntohs(packet->destination_port);

	return port >= loaded.first_port && port <= loaded.last_port;
}

/* is_pool reports whether a packet is for an address and port of the pool. */
static __always_inline bool is_pool(void *generation, const struct packet *packet)
{
	struct service *found;

	if (!has_mode(MODE_FULLNAT) || !has_pool_port(packet))
		return false;
	found = find_service(generation, packet, 0, PROTOCOL_ANY);
	return found && found->kind == KIND_POOL;
}

/* has_hairpin_port reports whether a packet's destination port is one of the hairpins'. */
static __always_inline bool has_hairpin_port(const struct packet *packet)
{
	__u16 port = bpf_ntohs(packet->destination_port);

	return port >= loaded.hairpin_first_port && port <= loaded.hairpin_last_port;
}

/* is_to_us reports whether a packet from a backend's endpoint is to our address towards that backend, which is this
 * host's own. */
static __always_inline bool is_to_us(void *generation, const struct endpoint *endpoint,
				     const struct packet *packet)
{
	struct backend *backend = backend_at(generation, endpoint->backend);

	return backend && same_address(backend->local, packet->destination);
}

/* answers_host reports whether a packet from a backend's endpoint is for an application of this host, whose socket is
 * connected to the backend itself: the packet has no flow entry to look up, and is not forwarded. */
static __always_inline bool answers_host(void *generation, const struct endpoint *endpoint,
					 const struct packet *packet)
{
	return loaded.local && !has_hairpin_port(packet) && is_to_us(generation, endpoint, packet);
}

/* is_from_hairpin reports whether a packet from a backend's endpoint may be a reply to a flow of a hairpin: to our
 * address towards that backend, and a port of the hairpins. */
static __always_inline bool is_from_hairpin(void *generation, const struct endpoint *endpoint,
					    const struct packet *packet)
{
	return endpoint && has_hairpin_port(packet) && is_to_us(generation, endpoint, packet);
}

/* return_hairpin translates a reply of a hairpin flow. If no flow has the 5-tuple, the packet is passed to this host,
 * because the address is its own. */
static __always_inline bool return_hairpin(void *generation, const struct packet *packet,
					   const struct endpoint *endpoint,
					   struct decision *decision, struct translation *to,
					   bool complete)
{
	__u32 at;

	if (!has_hairpins() || !is_from_hairpin(generation, endpoint, packet))
		return false;
	at = find_return(packet, hash_return(packet), 0);
	if (!at || !return_fullnat(generation, at, decision, to))
		return false;
	trace_add_reason(TRACE_HAIRPIN);
	if (complete)
		note_fullnat(generation, at, packet);
	return true;
}

/* select_return finds the backend and the translation of a reply: OUTCOME_NONE, and *decision and *to. */
static __always_inline enum outcome select_return(void *generation, const struct packet *packet,
						  struct decision *decision,
						  struct translation *to, bool complete)
{
	struct endpoint *endpoint;
	__u32 at;

	if (is_pool(generation, packet)) {
		at = find_return(packet, hash_return(packet), 0);
		if (!at || !return_fullnat(generation, at, decision, to))
			return flows_are_moving(generation) ? OUTCOME_DROPPED_FLOWS_MOVING :
							OUTCOME_DROPPED_NO_FLOW;
		/* A truncated packet, which is dropped, must not end a flow. */
		if (complete)
			note_fullnat(generation, at, packet);
		return OUTCOME_NONE;
	}
	if (!has_mode(MODE_NAT))
		return OUTCOME_PASSED_NO_SERVICE;
	at = search_endpoint(generation, packet, packet->source_port, packet->protocol);
	endpoint = endpoint_at(generation, packet, at);
	if (endpoint && answers_host(generation, endpoint, packet)) {
		trace_add_reason(TRACE_FROM_BACKEND);
		return OUTCOME_PASSED_NOT_FORWARDED;
	}
	if (return_hairpin(generation, packet, endpoint, decision, to, complete) ||
	    return_nat(generation, endpoint, decision, to))
		return OUTCOME_NONE;
	return OUTCOME_PASSED_NO_SERVICE;
}

/* is_ours reports whether a packet's destination is a VIP or the pool's, or its source a backend's: such a packet is
 * not passed to the kernel if the rest of it cannot be parsed. */
static __always_inline bool is_ours(void *generation, const struct packet *packet)
{
	return kind_of(packet) != KIND_NONE ||
	       endpoint_of(generation, packet, 0, PROTOCOL_ANY);
}
