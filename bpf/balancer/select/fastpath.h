/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fast path selects a backend by the slot, for a known flow in midstream, or for a new flow of
 * a service without limits. */
#pragma once

#include "newflow.h"
#include "select.h"
#include "lookup.h"

/* changes_flow reports whether a packet may begin or end a flow. */
static __always_inline bool changes_flow(const struct packet *packet)
{
	return packet->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST);
}

/* select_on_fast_path selects a backend on the fast path: by the hash, by the entry of a flow in midstream, or for a
 * new flow of a service without limits. False where the packet needs the slow path. */
static __always_inline bool select_on_fast_path(ctx_t *ctx, void *generation,
					   const struct packet *packet,
					   struct decision *decision, bool ipv6,
					   const struct flow **flow)
{
	const struct service *service = decision->service;

	if (!(service->flags & SERVICE_NEEDS_LOOKUP)) {
		if (!service->table_size)
			return true;
		/* The slot may have changed since the flags were read. */
		return select_by_hash(generation, packet, decision);
	}
	if (!(service->flags & SERVICE_TRACKED)) {
		if ((service->flags & SERVICE_RATE) && opens_connection(packet))
			return false;
		if (service->table_size && select_by_hash(generation, packet, decision))
			return true;
	}
	if (!changes_flow(packet)) {
		decision->opens = false;
		decision->backend = proven_backend(generation, service, packet, ipv6, flow);
		if (decision->backend)
			return true;
	}
	decision->opens = true;
	decision->backend = begin_on_fast_path(ctx, generation, service, packet, ipv6);
	return decision->backend;
}
