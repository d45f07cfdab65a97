/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Full NAT: a flow has an address and port of the pool for its lifetime. They are in its entry; a second table finds
 * the flow by the 5-tuple of its replies. */
#pragma once

#include "evict.h"
#include "returntable.h"
#include "track.h"
#include "../hash.h"

/* Ports of the pool that a new flow tries before it evicts another. In a pool that is nine tenths full, one flow in
 * thirty finds no free port. If the previous flow found none, a flow tries fewer: otherwise each flow of a flood would
 * cost that much. It tries more if those ports were all allocated since the last clock tick, because one may belong to
 * a client that is about to be proven. */
#define PORT_ATTEMPTS 32
#define PORT_ATTEMPTS_CROWDED 4
#define PORT_ATTEMPTS_CROWDED_NOW 8

/* reply_tuple writes the 5-tuple of a flow's replies: its backend, and its address and port of the pool. */
static __always_inline bool reply_tuple(void *generation, const struct flow *flow,
					__u32 protocol, struct packet *tuple)
{
	struct backend *backend = backend_at(generation, flow->backend);
	__be32 *pool;

	if (!backend)
		return false;
	pool = source_at(generation, backend, flow->source.address);
	if (!pool)
		return false;
	__builtin_memcpy(tuple->source, backend->address, sizeof(tuple->source));
	__builtin_memcpy(tuple->destination, pool, sizeof(tuple->destination));
	tuple->source_port = backend->port;
	tuple->destination_port = flow->source.port;
	tuple->protocol = protocol;
	tuple->ipv6 = backend->ipv6;
	return true;
}

/* pool_candidate sets the address and port of the pool for an attempt. */
static __always_inline bool pool_candidate(void *generation, bool ipv6, __u32 hash,
					   struct flow *flow)
{
	__u32 count = ipv6 ? loaded.own6_count : loaded.own4_count;
	__u32 ports = loaded.last_port - loaded.first_port + 1;
	__u32 *number = own_at(generation, ipv6, hash_scale(hash * 0x85ebca6b, count));

	if (!number)
		return false;
	flow->source.address = *number;
	flow->source.port = bpf_htons(loaded.first_port + hash_scale(hash, ports));
	return true;
}

/* hairpin_candidate sets a port, and the address of ours towards the flow's backend. */
static __always_inline bool hairpin_candidate(__u32 hash, struct flow *flow)
{
	__u32 ports = loaded.hairpin_last_port - loaded.hairpin_first_port + 1;

	flow->source.address = POOL_LOCAL;
	flow->source.port = bpf_htons(loaded.hairpin_first_port + hash_scale(hash, ports));
	return loaded.hairpin_last_port;
}

/* candidate sets the address and port that an attempt tries. */
static __always_inline bool candidate(void *generation, bool hairpin, bool ipv6, __u32 hash,
				      struct flow *flow)
{
	return has_hairpins() && hairpin ? hairpin_candidate(hash, flow) :
					   pool_candidate(generation, ipv6, hash, flow);
}

/* eviction_cost ranks the flows that may be evicted for their port, the cheapest first. For a closed flow, the backend
 * has no state or accepts the next SYN. In TIME-WAIT it accepts the next SYN if the sequence number or timestamp is
 * beyond the last one (RFC 6191), and otherwise only the retransmitted SYN after a RST of the new client. A half-open
 * flow may be about to be proven. */
static __always_inline __u32 eviction_cost(__u32 state)
{
	if (!is_closed(state))
		return 2;
	return state == FLOW_TIME_WAIT;
}

/* note_victim keeps the flow that holds the candidate port, if it may be evicted: of those of the lowest cost, the one
 * that has been idle for longest. */
static __always_inline void note_victim(struct scratch *scratch, __u32 holder)
{
	struct flow_bucket *bucket = flows_at(holder);
	struct victim *victim = &scratch->victim;
	__u32 at = index_of(holder & ~RETURN_PROVEN), state, idle, cost;

	if (!bucket)
		return;
	state = state_of(bucket, at);
	if (holder & RETURN_PROVEN ? !is_closed(state) : !is_evictable(state))
		return;
	cost = eviction_cost(state);
	idle = idle_time(bucket, at);
	if (victim->place && (cost > victim->cost ||
			      (cost == victim->cost && idle <= victim->idle)))
		return;
	victim->place = holder;
	victim->cost = cost;
	victim->idle = idle;
	victim->source = scratch->tracking.flow.source;
}

/* try_port allocates the candidate port if it is free: OUTCOME_NONE if so, OUTCOME_DROPPED_NO_PORT if not. Scratch:
 * reads the candidate in tracking.flow, tracking.flow_hash and tracking.place; writes victim. */
__noinline int try_port(__u32 protocol)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	struct flow_bucket *bucket;
	struct packet *tuple;
	struct flow *flow;
	__u32 holder;
	__u64 hash;

	if (!scratch)
		return OUTCOME_DROPPED_NO_FLOW;
	tracking = &scratch->tracking;
	tuple = &scratch->replies;
	if (!reply_tuple(generation, &tracking->flow, protocol, tuple))
		return OUTCOME_DROPPED_NO_PORT;
	hash = hash_return(tuple);
	holder = find_return(tuple, hash, 0);
	if (holder) {
		note_victim(scratch, holder);
		return OUTCOME_DROPPED_NO_PORT;
	}
	if (dry_run())
		return OUTCOME_NONE;
	bucket = bucket_of(false, tracking->place);
	if (!bucket)
		return OUTCOME_DROPPED_NO_FLOW;
	flow = &bucket->flows[index_of(tracking->place)];
	flow->source = tracking->flow.source;
	if (!insert_return(hash, tracking->place, tracking->flow_hash))
		return OUTCOME_DROPPED_FLOW_TABLE_FULL;
	/* Another CPU may have allocated the same port to another flow at the same time. */
	if (!find_return(tuple, hash, tracking->place))
		return OUTCOME_NONE;
	remove_return(hash, tracking->place);
	return OUTCOME_DROPPED_NO_PORT;
}

/* take_over_port evicts the victim, and gives the new flow its address and port. Scratch: reads victim; as
 * try_port(). */
static __always_inline int take_over_port(struct scratch *scratch, __u32 protocol)
{
	struct flow *flow = &scratch->tracking.flow;

	if (!scratch->victim.place)
		return OUTCOME_DROPPED_NO_PORT;
	flow->source = scratch->victim.source;
	if (dry_run())
		return OUTCOME_NONE;
	if (!evict(scratch->victim.place & ~RETURN_PROVEN, scratch->victim.place & RETURN_PROVEN))
		return OUTCOME_DROPPED_NO_PORT;
	return try_port(protocol);
}

/* tried_enough reports whether a new flow stops trying ports. */
static __always_inline bool tried_enough(const struct scratch *scratch, __u32 tried)
{
	__u32 enough = scratch->victim.idle ? PORT_ATTEMPTS_CROWDED : PORT_ATTEMPTS_CROWDED_NOW;

	return scratch->crowded && scratch->victim.place && tried >= enough;
}

/* allocate_port allocates an address and port that no other flow to the same backend has, for the new flow in struct
 * tracking. Scratch: reads what create_entry() writes; writes them in tracking.flow.source. */
__noinline int allocate_port(__u32 hairpin, __u32 ipv6, __u32 protocol, __u32 hash)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	int outcome;

	if (!scratch)
		return OUTCOME_DROPPED_NO_PORT;
	scratch->victim.place = 0;
	for (int i = 0; i < PORT_ATTEMPTS; i++) {
		if (tried_enough(scratch, i) ||
		    !candidate(generation, hairpin, ipv6, hash, &scratch->tracking.flow))
			break;
		outcome = try_port(protocol);
		if (outcome != OUTCOME_DROPPED_NO_PORT) {
			scratch->crowded = false;
			return outcome;
		}
		hash = hash * 0x9e3779b1 + 0x7f4a7c15;
	}
	scratch->crowded = true;
	return take_over_port(scratch, protocol);
}

/* keep_one_entry resolves the conflict of several CPUs that create a flow at the same time, as for a duplicated SYN:
 * one entry stays, because a flow has one port. The packets of the other CPUs are dropped. */
static __always_inline bool keep_one_entry(struct tracking *tracking, __u32 state, __u32 clock)
{
	for (int i = 0; i < CAS_TRIES; i++) {
		if (!has_duplicate(&tracking->flow, tracking->flow_hash, tracking->place))
			return true;
		discard_entry(tracking->place, tracking->flow_hash);
		if (search_place(&tracking->flow, tracking->flow_hash, false))
			return false;
		/* The other CPU has removed its entry, too. */
		tracking->place = insert_flow(&tracking->flow, tracking->flow_hash, false, state,
					      clock);
		if (!tracking->place)
			return false;
	}
	discard_entry(tracking->place, tracking->flow_hash);
	return false;
}

/* lacks_address reports whether the balancer has no address towards the backend of a new hairpin flow. */
static __always_inline bool lacks_address(void *generation, const struct service *service,
					  const struct flow *flow)
{
	struct backend *backend;

	if (!has_hairpins() || !(service->flags & SERVICE_IS_HAIRPIN))
		return false;
	backend = backend_at(generation, flow->backend);
	return !backend || !source_at(generation, backend, POOL_LOCAL);
}

/* begin_fullnat completes the entry of a new flow, or returns the outcome of a failure if no port is free. Scratch:
 * reads packet, and what create_entry() writes; writes tracking.source. */
__noinline int begin_fullnat(const struct service *service, __u32 hash)
{
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	void *generation;
	int outcome;

	if (!service || !scratch)
		return OUTCOME_DROPPED_NO_FLOW;
	tracking = &scratch->tracking;
	generation = current_generation();
	if (!dry_run() && !keep_one_entry(tracking, first_state(&scratch->packet), clock_of(generation)))
		return OUTCOME_DROPPED_NO_FLOW;
	outcome = lacks_address(generation, service, &tracking->flow) ?
			  OUTCOME_DROPPED_NO_ADDRESS :
			  allocate_port(service->flags & SERVICE_IS_HAIRPIN, scratch->packet.ipv6,
					scratch->packet.protocol, hash);
	tracking->source = tracking->flow.source;
	if (outcome != OUTCOME_NONE && !dry_run())
		discard_entry(tracking->place, tracking->flow_hash);
	return outcome;
}

/* move_fullnat updates the return table when a flow moves to the proven ones, to this place. Scratch: reads it in
 * tracking.moving. */
__noinline int move_fullnat(__u32 from, __u32 to, __u32 protocol)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();

	if (!scratch ||
	    !reply_tuple(generation, &scratch->tracking.moving, protocol, &scratch->replies))
		return 0;
	return move_return(hash_return(&scratch->replies), from, to | RETURN_PROVEN);
}
