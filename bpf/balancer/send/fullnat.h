/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Full NAT: the source that a flow's packets get, from the pool. */
#pragma once

#include "../select/selection.h"
#include "translate.h"

/* set_pool_source sets a packet's source to an address and port of the pool; false where that address was removed. */
static __always_inline bool set_pool_source(void *generation, struct backend *backend,
					    const struct pool_source *end, struct translation *to)
{
	__be32 *address = source_at(generation, backend, end->address);

	if (!address)
		return false;
	__builtin_memcpy(to->source, address, sizeof(to->source));
	to->source_port = end->port;
	return true;
}

/* set_flow_source sets a packet's source to its flow's address and port of the pool. Scratch: reads tracking.source. */
static __always_inline enum outcome set_flow_source(void *generation, const struct decision *decision,
						    struct translation *to)
{
	struct scratch *scratch = get_scratch();

	if (!scratch || !decision->backend)
		return OUTCOME_DROPPED_NO_FLOW;
	if (set_pool_source(generation, decision->backend, &scratch->tracking.source, to))
		return OUTCOME_NONE;
	return has_hairpins() && scratch->tracking.source.address == POOL_LOCAL ?
		       OUTCOME_DROPPED_NO_ADDRESS : OUTCOME_DROPPED_NO_FLOW;
}

/* apply_selection writes a packet's selection into the decision, and in mode fullnat the packet's new source into *to;
 * or it returns the outcome of a failed selection. Scratch: reads tracking.source. */
static __always_inline enum outcome apply_selection(void *generation, __u64 selection,
						    struct decision *decision,
						    struct translation *to)
{
	enum outcome outcome = decode_selection(generation, decision, selection);

	if (outcome != OUTCOME_NONE || !has_mode(MODE_FULLNAT) || decision->mode != MODE_FULLNAT)
		return outcome;
	return set_flow_source(generation, decision, to);
}
