/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Persistence (session affinity): a client's flows go to one backend for a while, or, of a group of services, to one
 * host. */
#pragma once

#include "group.h"
#include "../flow/load.h"
#include "../flow/prove.h"
#include "../scratch.h"

/* mask_address clears all but the first bits of an address. */
static __always_inline void mask_address(__be32 *address, __u32 bits)
{
#pragma unroll
	for (int word = 0; word < 4; word++) {
		if (bits >= 32) {
			bits -= 32;
			continue;
		}
		/* A shift by 32 would shift nothing. */
		address[word] &= bits ? bpf_htonl(0xffffffff << (32 - bits)) : 0;
		bits = 0;
	}
}

/* affinity_key_of writes the key of the affinity of a packet's client; false if the client has none. */
static __always_inline bool affinity_key_of(void *generation, struct flow *flow, const struct flow *of,
					    const struct service *service)
{
	__u32 id = service->id;

	__builtin_memset(flow, 0, sizeof(*flow));
	if (service->flags & SERVICE_GROUPED)
		id = group_of(generation, service);
	if ((service->flags & SERVICE_GROUPED) && !id)
		return false;
	__builtin_memcpy(flow->address, of->address, sizeof(flow->address));
	mask_address(flow->address, service->prefix);
	flow->service = id | FLOW_KEY_AFFINITY;
	return true;
}

/* affinity_backend returns the backend of a service by an affinity, or NULL. */
static __always_inline struct backend *affinity_backend(void *generation, const struct service *service,
							const struct flow *affinity)
{
	__u64 index;

	if (!(service->flags & SERVICE_GROUPED))
		return owner_of(generation, affinity);
	index = backend_of_host(service, affinity->backend | (__u64)affinity->generation << 32);
	return index < PICK_NONE ? backend_at(generation, index) : NULL;
}

/* accepts_new_flows reports whether a backend accepts new flows. */
static __always_inline bool accepts_new_flows(const struct backend *owner)
{
	struct backend_load *load;

	if (!owner->up || !owner->weight)
		return false;
	load = load_of(owner->index);
	return !load || !is_full(load);
}

/* find_affinity looks up a client's affinity: the backend's index, or PICK_NONE if there is no affinity, or its backend
 * accepts no new flows. Scratch: reads tracking.flow; writes the affinity's key in tracking.client, and
 * tracking.client_hash. */
__noinline __u64 find_affinity(const struct service *service)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	struct backend *owner;
	struct found found;

	if (!service || !scratch)
		return PICK_NONE;
	tracking = &scratch->tracking;
	if (!affinity_key_of(generation, &tracking->client, &tracking->flow, service))
		return PICK_NONE;
	tracking->client_hash = hash_of(&tracking->client);
	if (!find_flow(&tracking->client, tracking->client_hash, &found))
		return PICK_NONE;
	owner = affinity_backend(generation, service, &found.bucket->flows[found.at]);
	return owner && accepts_new_flows(owner) ? owner->index : PICK_NONE;
}

/* set_affinity_backend writes the backend of tracking.flow into tracking.client; false where there is no affinity to
 * store. */
static __always_inline bool set_affinity_backend(void *generation, struct tracking *tracking)
{
	struct flow *client = &tracking->client;
	struct backend *owner;
	__u64 number;

	if (!(client->service & FLOW_KEY_AFFINITY))
		return false;
	client->backend = tracking->flow.backend;
	client->generation = tracking->flow.generation;
	if (!(client->service & FLOW_KEY_GROUP))
		return true;
	owner = backend_at(generation, tracking->flow.backend);
	if (!owner)
		return false;
	number = host_number(owner);
	client->backend = number;
	client->generation = number >> 32;
	return true;
}

/* store_affinity stores the backend of a flow as its client's affinity. Scratch: reads tracking.flow, and what
 * find_affinity() writes. */
__noinline int store_affinity(void)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	struct found found;
	struct flow *flow;

	if (!scratch || dry_run())
		return 0;
	tracking = &scratch->tracking;
	if (!set_affinity_backend(generation, tracking))
		return 0;
	if (find_flow(&tracking->client, tracking->client_hash, &found)) {
		flow = &found.bucket->flows[found.at];
		if (flow->backend == tracking->client.backend &&
		    flow->generation == tracking->client.generation) {
			note_seen(found.bucket, found.at, clock_of(generation));
			return 0;
		}
		remove_flow(found.place, tracking->client_hash, found.proven);
	}
	return insert_flow(&tracking->client, tracking->client_hash, false, FLOW_AFFINITY_NEW,
			   clock_of(generation));
}

/* prove_affinity moves the affinity of a client whose flow is now proven to the proven ones. Scratch: reads
 * tracking.flow; writes what find_affinity() does. */
__noinline int prove_affinity(const struct service *service)
{
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	struct flow_bucket *bucket;
	__u32 place;

	if (!service || !scratch)
		return 0;
	tracking = &scratch->tracking;
	if (!affinity_key_of(current_generation(), &tracking->client, &tracking->flow, service))
		return 0;
	tracking->client_hash = hash_of(&tracking->client);
	place = search_place(&tracking->client, tracking->client_hash, false);
	if (!place)
		return 0;
	bucket = bucket_of(false, place);
	if (bucket && state_of(bucket, index_of(place)) == FLOW_AFFINITY_NEW &&
	    copy_proven(place, &tracking->moving, tracking->client_hash, FLOW_AFFINITY))
		remove_unproven(place, tracking->client_hash, FLOW_AFFINITY);
	return 0;
}
