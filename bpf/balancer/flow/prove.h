/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Flows that have proven themselves: they move to a table in which unproven flows take no room. */
#pragma once

#include "poolport.h"
#include "track.h"

/* has_not_proven says whether a state is one that proof changes: who finds another one is
 * late, for the flow was proven, or has ended, on another CPU. */
static __always_inline bool has_not_proven(__u32 state)
{
	return (state >= FLOW_OPENING && state <= FLOW_FIRST) || state == FLOW_AFFINITY_NEW;
}

/* copy_proven makes an entry of the unproven one of the proven too, if there is room, and
 * returns its place there. Of several CPUs, the one that changes its state does. */
static __always_inline place_t copy_proven(__u32 place, struct flow *copy, __u64 hash, __u32 state)
{
	struct flow_bucket *bucket = bucket_of(false, place);
	__u32 at = within(place), was;

	if (!bucket)
		return 0;
	was = state_of(bucket, at);
	if (!has_not_proven(was) || !set_state(bucket, at, was, state))
		return 0;
	*copy = bucket->flows[at];
	return insert_flow(copy, hash, true, state, bucket->seen[at]);
}

/* leave_unproven removes the unproven entry; false where its state has changed since. */
static __always_inline bool leave_unproven(__u32 place, __u64 hash, __u32 state)
{
	struct flow_bucket *bucket = bucket_of(false, place);

	if (!bucket)
		return true;
	if (!set_state(bucket, within(place), state, FLOW_FREE))
		return false;
	remove_flow(place, hash, false);
	return true;
}

/* end_copy ends a proven flow whose unproven entry was ended, or forgotten, and counted
 * off, before the copy was there to be found. If the copy was found and ended meanwhile,
 * it was counted off twice. */
static __always_inline void end_copy(const struct service *service, __u32 from, __u32 place,
				     __u64 hash, __u32 state)
{
	struct flow_bucket *unproven = bucket_of(false, from), *proven = bucket_of(true, place);
	__u32 at = within(place), next;

	if (!unproven || !proven)
		return;
	next = state_of(unproven, within(from));
	if (!is_ended(next))
		next = FLOW_FREE;
	if (set_state(proven, at, state, next)) {
		if (next == FLOW_FREE)
			remove_flow(place, hash, true);
	} else if (service->flags & SERVICE_TRACKED) {
		count_flow(service->id, proven->flows[at].backend, 1);
	}
}

/* prove_flow: a flow has proven itself. Scratch: takes tracking.place and tracking.flow_hash;
 * leaves the flow in tracking.moving. */
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
	/* Before the old place is empty: replies must find one of them. */
	if (nat)
		nat_moved(tracking->place, place, protocol);
	if (!leave_unproven(tracking->place, tracking->flow_hash, state))
		end_copy(service, tracking->place, place, tracking->flow_hash, state);
	return 0;
}
