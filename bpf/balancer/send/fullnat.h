/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Full NAT: what the source of a flow's packets becomes. */
#pragma once

#include "../choose/choice.h"
#include "translate.h"

/* from_pool makes the source of a packet what its flow has of the pool. Scratch: takes
 * tracking.source. */
static __always_inline enum outcome from_pool(void *generation, const struct decision *decision,
					      struct translation *to)
{
	struct scratch *scratch = get_scratch();
	__be32 *address;

	if (!scratch || !decision->backend)
		return OUTCOME_DROPPED_NO_FLOW;
	address = source_at(generation, decision->backend, scratch->tracking.source.address);
	if (!address)
		return has_hairpins() && scratch->tracking.source.address == POOL_LOCAL ?
			       OUTCOME_DROPPED_NO_ADDRESS : OUTCOME_DROPPED_NO_FLOW;
	__builtin_memcpy(to->source, address, sizeof(to->source));
	to->source_port = scratch->tracking.source.port;
	return OUTCOME_NONE;
}

/* apply_choice puts a packet's choice into the decision, and in mode fullnat the packet's new
 * source into *to; or it says why there is no choice. Scratch: takes tracking.source. */
static __always_inline enum outcome apply_choice(void *generation, __u64 choice,
						 struct decision *decision,
						 struct translation *to)
{
	enum outcome outcome = take_choice(generation, decision, choice);

	if (outcome != OUTCOME_NONE || !has_mode(MODE_FULLNAT) || decision->mode != MODE_FULLNAT)
		return outcome;
	return from_pool(generation, decision, to);
}
