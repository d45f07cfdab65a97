/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Eviction of flows for new ones that cannot do without an entry: those of full NAT, and of services that count. So a
 * flood of SYNs evicts its own flows, and a client's half-open flow stays until its turn comes: within that time the
 * packet must arrive that proves it, as in the SYN cache (J. Lemon, "Resisting SYN flood DoS attacks with a SYN cache",
 * BSDCon 2002). */
#pragma once

#include "track.h"

/* is_over says whether neither end will use a flow again. */
static __always_inline bool is_over(__u32 state)
{
	return state >= FLOW_CLOSED && state <= FLOW_TIME_WAIT;
}

/* may_go says whether a flow among the unproven, in this state, may be forgotten for
 * another. One that only half has ended, or that was met in its middle, may be in use. */
static __always_inline bool may_go(__u32 state)
{
	return state == FLOW_OPENING || state == FLOW_FIRST || is_over(state);
}

/* silence_of says for how long nothing was heard of a flow, in milliseconds. */
static __always_inline __u32 silence_of(const struct flow_bucket *bucket, __u32 at)
{
	__s32 silence = clock_of(current_generation()) - bucket->seen[at];

	/* Another CPU's clock was newer. */
	return silence < 0 ? 0 : silence;
}

/* evict forgets the flow at a place among the unproven or, if it is over, among the proven;
 * false if it may not go any more. */
__noinline int evict(__u32 place, __u32 proven)
{
	struct found found = { .place = place, .at = within(place), .proven = proven };
	struct turn *turn;
	struct flow *flow;
	__u32 state;

	found.bucket = bucket_of(proven, place);
	if (!found.bucket)
		return false;
	state = state_of(found.bucket, found.at);
	if (proven ? !is_over(state) : !may_go(state))
		return false;
	flow = &found.bucket->flows[found.at];
	turn = turn_of(flow->service);
	return forget_flow(&found, hash_of(flow), state, turn && turn->tracked);
}

/* make_room evicts, of the flows in the home of a new one, the one that has been silent
 * for longest. */
__noinline int make_room(__u64 hash)
{
	__u32 index = home_of(hash, loaded.newcomer_buckets), eldest = FLOW_BUCKET, longest = 0;
	struct flow_bucket *home = bucket_at(false, index);

	if (!home)
		return false;
	for (__u32 at = 0; at < FLOW_BUCKET; at++) {
		__u32 silence = silence_of(home, at);

		if (!may_go(state_of(home, at)) || (eldest < FLOW_BUCKET && silence <= longest))
			continue;
		eldest = at;
		longest = silence;
	}
	return eldest < FLOW_BUCKET && evict(place_of(index, eldest + 1), false);
}
