/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How many flows a backend and a service have, and how many a backend may have. */
#pragma once

#include "../maps.h"
#include "../trace.h"

static __always_inline struct backend_load *load_of(__u32 index)
{
	return bpf_map_lookup_elem(&loads, &index);
}

/* reaches_bound is is_full() for a backend with a limited number of flows. It is verified once, not for each state of
 * each caller's loop. */
__noinline int reaches_bound(struct backend_load *load)
{
	__u32 active, lower;

	if (!load)
		return false;
	active = load->active;
	lower = load->lower;
	if (!load->full) {
		if (active < load->upper)
			return false;
		if (!dry_run())
			load->full = 1;
		return true;
	}
	if (active >= (lower ? lower : load->upper))
		return true;
	if (!dry_run())
		load->full = 0;
	return false;
}

/* is_full reports whether a backend has reached its upper threshold of flows, and has not gone below the lower one
 * since. */
static __always_inline bool is_full(struct backend_load *load)
{
	return load->upper && reaches_bound(load);
}

/* effective_load is the number of flows of a backend that schedulers use: with its penalty. */
static __always_inline __u64 effective_load(const struct backend_load *load)
{
	return (__u64)load->active + load->penalty;
}

/* note_fewer updates the minimum number of flows per backend after a backend of a service has dropped to `flows`. */
static __always_inline void note_fewer(struct turn *turn, __u64 flows)
{
	if (turn && flows < turn->fewest)
		turn->fewest = flows;
}

/* count_flow adds a flow to the counts of its backend and its service, or subtracts one. The backend may then have the
 * fewest flows. */
static __always_inline void count_flow(__u32 id, __u32 index, __u32 by)
{
	struct backend_load *load = load_of(index);
	struct turn *turn = turn_of(id);

	if (load) {
		__u32 active = __sync_fetch_and_add(&load->active, by) + by;

		if ((__s32)by < 0)
			note_fewer(turn, active);
	}
	if (turn)
		__sync_fetch_and_add(&turn->active, by);
}
