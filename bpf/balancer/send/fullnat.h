/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Full NAT: the source that a flow's packets get, from the pool. */
#pragma once

#include "../choose/choice.h"
#include "translate.h"

/* take_pool_end gives a packet an address and port of the pool as its source; false where that address has gone. */
static __always_inline bool take_pool_end(void *generation, struct backend *backend,
					  const struct pool_end *end, struct translation *to)
{
	__be32 *address = source_at(generation, backend, end->address);

	if (!address)
		return false;
	__builtin_memcpy(to->source, address, sizeof(to->source));
	to->source_port = end->port;
	return true;
}

/* from_pool gives a packet its flow's address and port of the pool as its source. Scratch: takes tracking.source. */
static __always_inline enum outcome from_pool(void *generation, const struct decision *decision,
					      struct translation *to)
{
	struct scratch *scratch = get_scratch();

	if (!scratch || !decision->backend)
		return OUTCOME_DROPPED_NO_FLOW;
	if (take_pool_end(generation, decision->backend, &scratch->tracking.source, to))
		return OUTCOME_NONE;
	return has_hairpins() && scratch->tracking.source.address == POOL_LOCAL ?
		       OUTCOME_DROPPED_NO_ADDRESS : OUTCOME_DROPPED_NO_FLOW;
}

/* apply_choice puts a packet's choice into the decision, and in mode fullnat the packet's new source into *to; or it
 * returns the outcome of a packet without a choice. Scratch: takes tracking.source. */
static __always_inline enum outcome apply_choice(void *generation, __u64 choice,
						 struct decision *decision,
						 struct translation *to)
{
	enum outcome outcome = take_choice(generation, decision, choice);

	if (outcome != OUTCOME_NONE || !has_mode(MODE_FULLNAT) || decision->mode != MODE_FULLNAT)
		return outcome;
	return from_pool(generation, decision, to);
}
