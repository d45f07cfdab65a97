/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Full NAT: a flow has an address and port of the pool for as long as it lives. They stand in its entry; a second table
 * finds the flow by the 5-tuple of its replies. */
#pragma once

#include "evict.h"
#include "returntable.h"
#include "track.h"
#include "../hash.h"

/* Ports of the pool that a new flow tries before it takes another's. Of a pool that
 * is nine tenths full, one flow in thirty finds none. Where the one before it has found
 * none, it tries fewer: a flood would otherwise make each as expensive as that. It tries
 * more of them if those were all taken since the clock last moved, for a client who is
 * about to prove himself is among such. */
#define PORT_ATTEMPTS 32
#define PORT_ATTEMPTS_CROWDED 4
#define PORT_ATTEMPTS_CROWDED_NOW 8

/* reply_ends writes the source and destination of replies to a flow: its backend, and its address and port of the
 * pool. */
static __always_inline bool reply_ends(void *generation, const struct flow *flow,
				       __u32 protocol, struct packet *ends)
{
	struct backend *backend = backend_at(generation, flow->backend);
	__be32 *pool;

	if (!backend)
		return false;
	pool = source_at(generation, backend, flow->source.address);
	if (!pool)
		return false;
	__builtin_memcpy(ends->source, backend->address, sizeof(ends->source));
	__builtin_memcpy(ends->destination, pool, sizeof(ends->destination));
	ends->source_port = backend->port;
	ends->destination_port = flow->source.port;
	ends->protocol = protocol;
	ends->ipv6 = backend->ipv6;
	return true;
}

/* nat_candidate gives the new flow the address and port of the pool that an attempt tries. */
static __always_inline bool nat_candidate(void *generation, bool ipv6, __u32 hash,
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

/* hairpin_candidate likewise gives it a port, and the address of ours that the flow's backend knows. */
static __always_inline bool hairpin_candidate(__u32 hash, struct flow *flow)
{
	__u32 ports = loaded.hairpin_last_port - loaded.hairpin_first_port + 1;

	flow->source.address = POOL_LOCAL;
	flow->source.port = bpf_htons(loaded.hairpin_first_port + hash_scale(hash, ports));
	return loaded.hairpin_last_port;
}

/* candidate gives a new flow the address and port that an attempt tries. */
static __always_inline bool candidate(void *generation, bool hairpin, bool ipv6, __u32 hash,
				      struct flow *flow)
{
	return has_hairpins() && hairpin ? hairpin_candidate(hash, flow) :
					   nat_candidate(generation, ipv6, hash, flow);
}

/* cost_of ranks the flows that a port may be taken from, the cheapest first. A backend has forgotten a flow that is
 * over, or takes the next SYN. Of one in TIME-WAIT it takes the next SYN if its sequence number or timestamp is beyond
 * the last (RFC 6191), and else only after the new client's RST, with its next SYN. A half-open flow may be about to
 * prove itself. */
static __always_inline __u32 cost_of(__u32 state)
{
	if (!is_over(state))
		return 2;
	return state == FLOW_TIME_WAIT;
}

/* note_elder keeps which flow has the candidate, if it may have to give it up: of those that
 * cost the least, the one that has been silent for longest. */
static __always_inline void note_elder(struct scratch *scratch, __u32 holder)
{
	struct flow_bucket *bucket = flows_at(holder);
	struct elder *elder = &scratch->elder;
	__u32 at = within(holder & ~RETURN_PROVEN), state, silence, cost;

	if (!bucket)
		return;
	state = state_of(bucket, at);
	if (holder & RETURN_PROVEN ? !is_over(state) : !may_go(state))
		return;
	cost = cost_of(state);
	silence = silence_of(bucket, at);
	if (elder->place && (cost > elder->cost ||
			     (cost == elder->cost && silence <= elder->silence)))
		return;
	elder->place = holder;
	elder->cost = cost;
	elder->silence = silence;
	elder->source = scratch->tracking.flow.source;
}

/* nat_try finds out whether the candidate is free, and takes it: OUTCOME_NONE if so,
 * OUTCOME_DROPPED_NO_PORT if not. Scratch: takes the candidate in tracking.flow,
 * tracking.flow_hash and tracking.place; leaves elder. */
__noinline int nat_try(__u32 protocol)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	struct flow_bucket *bucket;
	struct packet *ends;
	struct flow *flow;
	__u32 holder;
	__u64 hash;

	if (!scratch)
		return OUTCOME_DROPPED_NO_FLOW;
	tracking = &scratch->tracking;
	ends = &scratch->replies;
	if (!reply_ends(generation, &tracking->flow, protocol, ends))
		return OUTCOME_DROPPED_NO_PORT;
	hash = hash_return(ends);
	holder = find_return(ends, hash, 0);
	if (holder) {
		note_elder(scratch, holder);
		return OUTCOME_DROPPED_NO_PORT;
	}
	if (dry_run())
		return OUTCOME_NONE;
	bucket = bucket_of(false, tracking->place);
	if (!bucket)
		return OUTCOME_DROPPED_NO_FLOW;
	flow = &bucket->flows[within(tracking->place)];
	flow->source = tracking->flow.source;
	if (!insert_return(hash, tracking->place, tracking->flow_hash))
		return OUTCOME_DROPPED_FLOW_TABLE_FULL;
	/* Another CPU may have taken the same for another flow, at the same time. */
	if (!find_return(ends, hash, tracking->place))
		return OUTCOME_NONE;
	remove_return(hash, tracking->place);
	return OUTCOME_DROPPED_NO_PORT;
}

/* nat_take_over gives the new flow the elder's address and port. Scratch: takes elder; as nat_try(). */
static __always_inline int nat_take_over(struct scratch *scratch, __u32 protocol)
{
	struct flow *flow = &scratch->tracking.flow;

	if (!scratch->elder.place)
		return OUTCOME_DROPPED_NO_PORT;
	flow->source = scratch->elder.source;
	if (dry_run())
		return OUTCOME_NONE;
	if (!evict(scratch->elder.place & ~RETURN_PROVEN, scratch->elder.place & RETURN_PROVEN))
		return OUTCOME_DROPPED_NO_PORT;
	return nat_try(protocol);
}

/* tried_enough says whether a new flow stops looking for a port that is free. */
static __always_inline bool tried_enough(const struct scratch *scratch, __u32 tried)
{
	__u32 enough = scratch->elder.silence ? PORT_ATTEMPTS_CROWDED : PORT_ATTEMPTS_CROWDED_NOW;

	return scratch->crowded && scratch->elder.place && tried >= enough;
}

/* nat_claim gives the new flow of struct tracking an address and port that no other flow
 * to the same backend has. Scratch: takes what remember() leaves; leaves them in
 * tracking.flow.source. */
__noinline int nat_claim(__u32 hairpin, __u32 ipv6, __u32 protocol, __u32 hash)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	int outcome;

	if (!scratch)
		return OUTCOME_DROPPED_NO_PORT;
	scratch->elder.place = 0;
	for (int i = 0; i < PORT_ATTEMPTS; i++) {
		if (tried_enough(scratch, i) ||
		    !candidate(generation, hairpin, ipv6, hash, &scratch->tracking.flow))
			break;
		outcome = nat_try(protocol);
		if (outcome != OUTCOME_DROPPED_NO_PORT) {
			scratch->crowded = false;
			return outcome;
		}
		hash = hash * 0x9e3779b1 + 0x7f4a7c15;
	}
	scratch->crowded = true;
	return nat_take_over(scratch, protocol);
}

/* nat_alone sees to it that of several CPUs that begin a flow at the same time, as where
 * a SYN was sent twice, one does: a flow has one port. The others' packets are lost. */
static __always_inline bool nat_alone(struct tracking *tracking, __u32 state, __u32 clock)
{
	for (int i = 0; i < TRIES; i++) {
		if (!has_twin(&tracking->flow, tracking->flow_hash, tracking->place))
			return true;
		forget_place(tracking->place, tracking->flow_hash);
		if (search_place(&tracking->flow, tracking->flow_hash, false))
			return false;
		/* It has stepped back, too. */
		tracking->place = insert_flow(&tracking->flow, tracking->flow_hash, false, state,
					      clock);
		if (!tracking->place)
			return false;
	}
	forget_place(tracking->place, tracking->flow_hash);
	return false;
}

/* lacks_address says whether no address of ours is known that the backend of a hairpin's new flow
 * could answer. */
static __always_inline bool lacks_address(void *generation, const struct service *service,
					  const struct flow *flow)
{
	struct backend *backend;

	if (!has_hairpins() || !(service->flags & SERVICE_IS_HAIRPIN))
		return false;
	backend = backend_at(generation, flow->backend);
	return !backend || !source_at(generation, backend, POOL_LOCAL);
}

/* nat_begin completes a flow that was just remembered: a choice that failed where there
 * is no port for it. Scratch: takes packet, and what remember() leaves; leaves
 * tracking.source. */
__noinline int nat_begin(const struct service *service, __u32 hash)
{
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	void *generation;
	int outcome;

	if (!service || !scratch)
		return OUTCOME_DROPPED_NO_FLOW;
	tracking = &scratch->tracking;
	generation = current_generation();
	if (!dry_run() && !nat_alone(tracking, first_state(&scratch->packet), clock_of(generation)))
		return OUTCOME_DROPPED_NO_FLOW;
	outcome = lacks_address(generation, service, &tracking->flow) ?
			  OUTCOME_DROPPED_NO_ADDRESS :
			  nat_claim(service->flags & SERVICE_IS_HAIRPIN, scratch->packet.ipv6,
				    scratch->packet.protocol, hash);
	tracking->source = tracking->flow.source;
	if (outcome != OUTCOME_NONE && !dry_run())
		forget_place(tracking->place, tracking->flow_hash);
	return outcome;
}

/* nat_moved: a flow has moved to the proven, to this place. Scratch: takes it in
 * tracking.moving. */
__noinline int nat_moved(__u32 from, __u32 to, __u32 protocol)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();

	if (!scratch ||
	    !reply_ends(generation, &scratch->tracking.moving, protocol, &scratch->replies))
		return 0;
	return move_return(hash_return(&scratch->replies), from, to | RETURN_PROVEN);
}
