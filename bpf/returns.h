/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which packets are replies of backends that come back through us, and what they
 * become. */
#pragma once

#include "fullnat.h"
#include "select.h"

/* return_nat: the source was looked for among the backends' endpoints, and becomes
 * the VIP's. */
static __always_inline bool return_nat(void *generation, struct endpoint *endpoint,
				       struct decision *decision, struct translation *to)
{
	if (!endpoint)
		return false;
	__builtin_memcpy(to->source, endpoint->vip, sizeof(to->source));
	to->source_port = endpoint->port;
	decision->mss = endpoint->mss;
	decision->mode = MODE_NAT;
	decision->backend = backend_at(generation, endpoint->backend);
	return decision->backend;
}

/* nat_origin writes whom a full-NAT reply is from, and whom for. */
static __always_inline void nat_origin(const struct nat_return *back, struct translation *to)
{
	__builtin_memcpy(to->source, back->vip, sizeof(to->source));
	to->source_port = back->vip_port;
	__builtin_memcpy(to->destination, back->client.address, sizeof(to->destination));
	to->destination_port = back->client.port;
}

/* return_fullnat: both ends were looked for among the flows'. */
static __always_inline bool return_fullnat(void *generation, struct nat_return *back,
					   struct decision *decision, struct translation *to)
{
	struct backend *backend;

	if (!back)
		return false;
	backend = backend_at(generation, back->backend);
	if (!backend || backend->generation != back->generation)
		return false;
	nat_origin(back, to);
	decision->mss = back->mss;
	decision->mode = MODE_FULLNAT;
	decision->backend = backend;
	return true;
}

/* has_pool_port says whether a port is one that full NAT gives out. */
static __always_inline bool has_pool_port(const struct packet *packet)
{
	__u16 port = bpf_ntohs(packet->destination_port);

	return port >= loaded.first_port && port <= loaded.last_port;
}

/* is_pool says whether a packet is for an address and port of the pool. */
static __always_inline bool is_pool(void *generation, const struct packet *packet)
{
	struct service *found;

	if (!has_mode(MODE_FULLNAT) || !has_pool_port(packet))
		return false;
	found = find_service(generation, packet, 0, PROTOCOL_ANY);
	return found && found->kind == KIND_POOL;
}

/* select_return says whose reply a packet is: OUTCOME_NONE, and *decision and *to. */
static __always_inline enum outcome select_return(void *generation, const struct packet *packet,
						  struct decision *decision,
						  struct translation *to, bool whole)
{
	struct nat_return *back;
	__u32 at;

	if (is_pool(generation, packet)) {
		back = nat_reply_inline(packet);
		if (!back || !return_fullnat(generation, back, decision, to))
			return OUTCOME_DROPPED_NO_FLOW;
		/* What is dropped because it lies must not end a flow. */
		if (whole)
			nat_note_reply(back, packet);
		return OUTCOME_NONE;
	}
	if (!has_mode(MODE_NAT))
		return OUTCOME_PASSED_NO_SERVICE;
	at = search_endpoint(generation, packet, packet->source_port, packet->protocol);
	return return_nat(generation, endpoint_at(generation, packet, at), decision, to) ?
		       OUTCOME_NONE : OUTCOME_PASSED_NO_SERVICE;
}

/* is_ours says whether a packet's destination is a VIP or the pool's, or its source
 * a backend's: what cannot be read of it must not slip through. */
static __always_inline bool is_ours(void *generation, const struct packet *packet)
{
	return kind_of(packet) != KIND_NONE ||
	       endpoint_of(generation, packet, 0, PROTOCOL_ANY);
}
