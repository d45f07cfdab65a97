/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A choice is the backend that a packet of a service goes to, or why there is none. */
#pragma once

#include "../decision.h"
#include "../maps.h"

/* A choice is the backend's index in the low half, and in the high half this, or an enum
 * outcome and CHOICE_FAILED. */
#define CHOICE_OPENS (1ULL << 32)
/* The flow has just proven itself. */
#define CHOICE_PROVEN (1ULL << 33)
/* No choice yet: no flow entry names a backend. */
#define CHOICE_OPEN (1ULL << 34)
#define CHOICE_FAILED (1ULL << 63)

static __always_inline __u64 fail_with(enum outcome outcome)
{
	return CHOICE_FAILED | outcome;
}

/* No backend has this index. */
#define NO_BACKEND 0xffffffff

static __always_inline __u64 choice_of(__u32 index, bool opens)
{
	if (index == NO_BACKEND)
		return fail_with(OUTCOME_DROPPED_NO_BACKEND);
	return index | (opens ? CHOICE_OPENS : 0);
}

/* failure is the outcome of a packet for which there was no choice. */
static __always_inline enum outcome failure(__u32 outcome)
{
	/* The verifier knows no more of it than that it is a number, and other outcomes come
	 * with a backend. It does not follow the one comparison that the compiler would
	 * make of these two. */
	if (outcome < OUTCOME_DROPPED_MALFORMED)
		return OUTCOME_DROPPED_NO_BACKEND;
	asm volatile("" : "+r"(outcome));
	return outcome < OUTCOME_COUNT ? outcome : OUTCOME_DROPPED_NO_BACKEND;
}

/* take_choice puts a choice into the decision, or returns the outcome of a packet without one. */
static __always_inline enum outcome take_choice(void *generation, struct decision *decision,
						__u64 choice)
{
	if (choice & CHOICE_FAILED)
		return failure(choice);
	decision->backend = backend_at(generation, (__u32)choice);
	decision->opens = !!(choice & CHOICE_OPENS);
	return decision->backend ? OUTCOME_NONE : OUTCOME_DROPPED_NO_BACKEND;
}
