/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Limits of a service's new flows: their rate, and the number of those that are open. */
#pragma once

#include "../flow/flowtable.h"
#include "../maps.h"
#include "../trace.h"

/* exceeds_rate reports whether a new connection exceeds the rate, and accounts for it if not (ITU-T I.371, annex A,
 * virtual scheduling). */
static __always_inline bool exceeds_rate(struct turn *turn)
{
	__u64 now = bpf_ktime_get_ns();

	for (int i = 0; i < CAS_TRIES; i++) {
		__u64 due = turn->due, from = due > now ? due : now;

		if (due > now + turn->burst)
			return true;
		if (dry_run())
			return false;
		if (__sync_val_compare_and_swap(&turn->due, due, from + turn->interval) == due)
			return false;
	}
	return false;
}

/* check_limits enforces a service's limits: OUTCOME_NONE if a new flow may begin. */
static __always_inline enum outcome check_limits(const struct service *service)
{
	struct turn *turn;

	if (!(service->flags & (SERVICE_RATE | SERVICE_LIMITED)))
		return OUTCOME_NONE;
	turn = turn_of(service->id);
	if (!turn)
		return OUTCOME_NONE;
	if ((service->flags & SERVICE_RATE) && exceeds_rate(turn))
		return OUTCOME_DROPPED_RATE_LIMIT;
	if (turn->cap && turn->active >= turn->cap)
		return OUTCOME_DROPPED_CONNECTION_LIMIT;
	return OUTCOME_NONE;
}
