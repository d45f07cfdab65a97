/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Full NAT: what the source of a flow's packets becomes. */
#pragma once

#include "../choose/choice.h"
#include "translate.h"

/* nat_source writes what the source of a flow's packets becomes. */
static __always_inline bool nat_source(void *generation, bool ipv6, const struct tracking *tracking,
				       struct translation *to)
{
	__be32 *address = pool_at(generation, ipv6, tracking->nat_address);

	if (!address)
		return false;
	__builtin_memcpy(to->source, address, sizeof(to->source));
	to->source_port = tracking->nat_port;
	return true;
}

/* select_flow takes the flow that was found or begun for the packet. */
static __always_inline enum outcome select_flow(void *generation, const struct packet *packet,
						struct decision *decision,
						struct translation *to)
{
	struct scratch *scratch = get_scratch();
	enum outcome outcome;

	if (!scratch)
		return OUTCOME_DROPPED_NO_FLOW;
	outcome = take_choice(generation, decision, scratch->tracking.choice);
	if (outcome != OUTCOME_NONE)
		return outcome;
	return nat_source(generation, packet->ipv6, &scratch->tracking, to) ?
		       OUTCOME_NONE :
		       OUTCOME_DROPPED_NO_FLOW;
}
