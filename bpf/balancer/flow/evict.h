/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Eviction of flows for new ones that cannot do without an entry: those of full NAT, and of services that count. So a
 * flood of SYNs evicts its own flows, and a client's half-open flow stays until its turn comes: within that time the
 * packet must arrive that proves it, as in the SYN cache (J. Lemon, "Resisting SYN flood DoS attacks with a SYN cache",
 * BSDCon 2002). */
#pragma once

#include "track.h"

/* is_closed reports whether both ends have closed a flow. */
static __always_inline bool is_closed(__u32 state)
{
	return state >= FLOW_CLOSED && state <= FLOW_TIME_WAIT;
}

/* is_evictable reports whether an unproven flow in this state may be evicted. One that is half closed, or whose first
 * packet was in midstream, may be in use. */
static __always_inline bool is_evictable(__u32 state)
{
	return state == FLOW_OPENING || state == FLOW_FIRST || is_closed(state);
}

/* idle_time returns how long a flow has been idle, in milliseconds. */
static __always_inline __u32 idle_time(const struct flow_bucket *bucket, __u32 at)
{
	__s32 idle = clock_of(current_generation()) - bucket->seen[at];

	/* Another CPU's clock was newer. */
	return idle < 0 ? 0 : idle;
}

/* evict deletes the flow at a place among the unproven or, if it is closed, among the proven; false if its state has
 * changed. */
__noinline int evict(__u32 place, __u32 proven)
{
	struct found found = { .place = place, .at = index_of(place), .proven = proven };
	struct turn *turn;
	struct flow *flow;
	__u32 state;

	found.bucket = bucket_of(proven, place);
	if (!found.bucket)
		return false;
	state = state_of(found.bucket, found.at);
	if (proven ? !is_closed(state) : !is_evictable(state))
		return false;
	flow = &found.bucket->flows[found.at];
	turn = turn_of(flow->service);
	return delete_flow(&found, hash_of(flow), state, turn && turn->tracked);
}

/* evict_oldest evicts a flow from the home bucket of a new flow: the evictable one that has been idle for longest. */
__noinline int evict_oldest(__u64 hash)
{
	__u32 index = home_of(hash, loaded.newcomer_buckets), oldest = FLOW_BUCKET, longest = 0;
	struct flow_bucket *home = bucket_at(false, index);

	if (!home)
		return false;
	for (__u32 at = 0; at < FLOW_BUCKET; at++) {
		__u32 idle = idle_time(home, at);

		if (!is_evictable(state_of(home, at)) || (oldest < FLOW_BUCKET && idle <= longest))
			continue;
		oldest = at;
		longest = idle;
	}
	return oldest < FLOW_BUCKET && evict(place_of(index, oldest + 1), false);
}
