/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which packets from a backend's endpoint (mode nat) are part of a flow of its service, where the service tracks them.
 * A backend may send others from the same port: to a client that connects to its own address, or to a server that it
 * connects to. */
#pragma once

#include "../select/lookup.h"
#include "../select/slot.h"

/* has_flow reports whether a table has an entry of the key with this backend. With `refresh` the entry's time is
 * refreshed, unless the flow is half open: the backend's packets do not extend its timeout. */
static __always_inline bool has_flow(const struct flow *key, __u64 hash, bool proven,
				     const struct backend *owner, bool refresh)
{
	place_t place = search_place(key, hash, proven);
	struct flow_bucket *bucket;
	struct flow *flow;
	__u32 at, state;

	if (!place)
		return false;
	at = index_of(place);
	bucket = bucket_of(proven, place);
	if (!bucket)
		return false;
	flow = &bucket->flows[at];
	state = state_of(bucket, at);
	if (state == FLOW_FREE || flow->backend != owner->index ||
	    flow->generation != owner->generation)
		return false;
	if (refresh && state != FLOW_OPENING)
		note_seen(bucket, at, clock_of(current_generation()));
	return true;
}

/* slot_leads_to reports whether a slot of a table has this backend. */
static __always_inline bool slot_leads_to(void *generation, __u64 block, __u32 slot,
					  const struct backend *owner)
{
	const struct backend *member = member_of(generation, block, slot);

	return member && member->index == owner->index && member->generation == owner->generation;
}

/* hash_leads_to reports whether the hash alone selects this backend for a client's packets, or did so before the last
 * changes. */
static __always_inline bool hash_leads_to(void *generation, const struct service *service,
					  const struct flow *client, bool ipv6,
					  const struct backend *owner)
{
	__be16 port = service->flags & SERVICE_BY_SOURCE ? 0 : client->port;
	__u32 hash = hash_client(ipv6 ? (__u64)client->address[1] << 32 | client->address[0] :
					client->address[0],
				 (__u64)client->address[3] << 32 | client->address[2], port, ipv6);

	if (service->table_size && slot_leads_to(generation, read_block(&service->current),
						 hash_scale(hash, service->table_size), owner))
		return true;
	/* As in lookup_slot() and lookup_base(). */
	service = READ_AFTER(is_weak(), service, (const __u64 *)&service->current);
	if (!(service->flags & SERVICE_BASE))
		return false;
	service = READ_AFTER(is_weak(), service, &service->flags);
	return slot_leads_to(generation, read_block(&service->base), hash_scale(hash, service->base_size), owner);
}

/* may_lack_entry reports whether a packet may be part of a flow of its endpoint that has no entry although its service
 * tracks all flows: the flow began before the service tracked them, there was no room, or the entry has expired. The
 * hash selects the backend of such flows, except of flows from before their backend was removed and added again, and of
 * flows that are being moved: of those nothing is known. If a reply of such a flow reached its client untranslated, the
 * client would answer with a reset. */
static __always_inline bool may_lack_entry(void *generation, const struct packet *reply,
					   const struct endpoint *endpoint,
					   const struct flow *client,
					   const struct backend *owner)
{
	struct turn *turn = turn_of(endpoint->service);
	struct service *service;

	if (!turn)
		return false;
	if (turn->came_back || flows_are_moving(generation))
		return true;
	if (!turn->unremembered)
		return false;
	service = find_service_at(generation, reply->ipv6, endpoint->vip, endpoint->port,
				  reply->protocol);
	return service && hash_leads_to(generation, service, client, reply->ipv6, owner);
}

/* is_reply reports whether a packet from an endpoint is part of a flow of the endpoint's service; without flow entries,
 * every packet counts as one. `refresh`: the packet refreshes the flow's expiry. Scratch: reads closes; tracking.flow
 * is its own. */
__noinline int is_reply(const struct packet *reply, __u32 refresh)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct endpoint *endpoint;
	struct backend *owner;
	struct flow *key;
	__u64 hash;

	if (!reply || !scratch)
		return true;
	endpoint = endpoint_of(generation, reply, reply->source_port, reply->protocol);
	if (!endpoint || endpoint->service == NO_SERVICE)
		return true;
	owner = backend_at(generation, endpoint->backend);
	if (!owner)
		return true;
	key = &scratch->tracking.flow;
	flow_of(key, reply, endpoint->service);
	__builtin_memcpy(key->address, reply->destination, sizeof(key->address));
	key->port = reply->destination_port;
	hash = hash_of(key);
	if (has_flow(key, hash, true, owner, refresh) || has_flow(key, hash, false, owner, refresh))
		return true;
	/* Between the first lookup and the second, another CPU may have moved it: as in find_moved(). */
	order_all(is_weak());
	return has_flow(key, hash, true, owner, refresh) ||
	       (refresh && (reply->tcp_flags & (TCP_FIN | TCP_RST)) && scratch->closes) ||
	       may_lack_entry(generation, reply, endpoint, key, owner);
}
