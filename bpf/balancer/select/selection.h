/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A selection is the backend of a packet of a service, or the reason why there is none. */
#pragma once

#include "../decision.h"
#include "../maps.h"

/* A selection is the backend's index in the low half, and in the high half this, or an enum
 * outcome and SELECTION_FAILED. */
#define SELECTION_OPENS (1ULL << 32)
/* The flow is proven by this packet. */
#define SELECTION_PROVEN (1ULL << 33)
/* No selection yet: no flow entry has a backend. */
#define SELECTION_NONE (1ULL << 34)
#define SELECTION_FAILED (1ULL << 63)

static __always_inline __u64 fail_with(enum outcome outcome)
{
	return SELECTION_FAILED | outcome;
}

/* No backend has this index. */
#define NO_BACKEND 0xffffffff

static __always_inline __u64 selection_of(__u32 index, bool opens)
{
	if (index == NO_BACKEND)
		return fail_with(OUTCOME_DROPPED_NO_BACKEND);
	return index | (opens ? SELECTION_OPENS : 0);
}

/* failed_outcome returns the outcome of a packet for which the selection has failed. */
static __always_inline enum outcome failed_outcome(__u32 outcome)
{
	/* The verifier knows only that the outcome is a number, and the other outcomes have a backend. It does not follow
	 * the single comparison into which the compiler would merge these two. */
	if (outcome < OUTCOME_DROPPED_MALFORMED)
		return OUTCOME_DROPPED_NO_BACKEND;
	asm volatile("" : "+r"(outcome));
	return outcome < OUTCOME_COUNT ? outcome : OUTCOME_DROPPED_NO_BACKEND;
}

/* decode_selection writes a selection's backend into the decision, or returns the outcome of a packet without one. */
static __always_inline enum outcome decode_selection(void *generation, struct decision *decision,
						     __u64 selection)
{
	if (selection & SELECTION_FAILED)
		return failed_outcome(selection);
	decision->backend = backend_at(generation, (__u32)selection);
	decision->opens = !!(selection & SELECTION_OPENS);
	return decision->backend ? OUTCOME_NONE : OUTCOME_DROPPED_NO_BACKEND;
}
