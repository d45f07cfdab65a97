/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Proven flows: they move to a table of their own, in which unproven flows take no room. */
#pragma once

#include "poolport.h"
#include "track.h"

/* is_unproven reports whether a flow in this state can be proven: otherwise it was proven, or has ended, on another
 * CPU. */
static __always_inline bool is_unproven(__u32 state)
{
	return (state >= FLOW_OPENING && state <= FLOW_FIRST) || state == FLOW_AFFINITY_NEW;
}

/* copy_proven copies an unproven entry to the proven ones, if there is room, and returns its place there. Of several
 * CPUs, only the one that changes its state copies it. */
static __always_inline place_t copy_proven(__u32 place, struct flow *copy, __u64 hash, __u32 state)
{
	struct flow_bucket *bucket = bucket_of(false, place);
	__u32 at = index_of(place), old;

	if (!bucket)
		return 0;
	old = state_of(bucket, at);
	if (!is_unproven(old) || !set_state(bucket, at, old, state))
		return 0;
	*copy = bucket->flows[at];
	return insert_flow(copy, hash, true, state, bucket->seen[at]);
}

/* remove_unproven removes the unproven entry; false where its state has changed since. */
static __always_inline bool remove_unproven(__u32 place, __u64 hash, __u32 state)
{
	struct flow_bucket *bucket = bucket_of(false, place);

	if (!bucket)
		return true;
	if (!set_state(bucket, index_of(place), state, FLOW_FREE))
		return false;
	remove_flow(place, hash, false);
	return true;
}

/* end_copy ends a proven flow whose unproven entry was ended, or deleted, and subtracted from the counts, before the
 * copy could be found. If the copy was found and ended meanwhile, it was subtracted twice. */
static __always_inline void end_copy(const struct service *service, __u32 from, __u32 place,
				     __u64 hash, __u32 state)
{
	struct flow_bucket *unproven = bucket_of(false, from), *proven = bucket_of(true, place);
	__u32 at = index_of(place), next;

	if (!unproven || !proven)
		return;
	next = state_of(unproven, index_of(from));
	if (!is_ended(next))
		next = FLOW_FREE;
	if (set_state(proven, at, state, next)) {
		if (next == FLOW_FREE)
			remove_flow(place, hash, true);
	} else if (service->flags & SERVICE_TRACKED) {
		count_flow(service->id, proven->flows[at].backend, 1);
	}
}

/* prove_flow moves a flow that is now proven to the proven ones. Scratch: reads tracking.place and tracking.flow_hash;
 * writes the flow in tracking.moving. */
__noinline int prove_flow(const struct service *service, __u32 nat, __u32 protocol)
{
	__u32 state = protocol == IPPROTO_UDP ? FLOW_UDP : FLOW_ESTABLISHED;
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	place_t place;

	if (!service || !scratch)
		return 0;
	tracking = &scratch->tracking;
	place = copy_proven(tracking->place, &tracking->moving, tracking->flow_hash, state);
	if (!place)
		return 0;
	/* Before the old place is empty: replies must find one of the two. */
	if (nat)
		move_fullnat(tracking->place, place, protocol);
	if (!remove_unproven(tracking->place, tracking->flow_hash, state))
		end_copy(service, tracking->place, place, tracking->flow_hash, state);
	return 0;
}
