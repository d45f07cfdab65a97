/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet from its arrival to the kernel's verdict. Include after one of the ctx_*.h
 * headers. */
#pragma once

#include "aside.h"
#include "balance.h"
#include "hasten.h"

/* verdict tells the kernel what the outcome means. */
static __always_inline int verdict(const ctx_t *ctx, enum outcome outcome, __u32 egress)
{
	if (sent_on(outcome))
		return ctx_send(ctx, egress, !leaves(egress));
	if (outcome >= OUTCOME_ANSWERED_TOO_BIG && outcome <= OUTCOME_UNREACHABLE_CONNECTION_LIMIT)
		return ctx_send(ctx, 0, true);
	return outcome <= OUTCOME_PASSED_TO_ROUTE ? CTX_PASS : CTX_DROP;
}

/* run is what both programs do. */
static __always_inline int run(ctx_t *ctx)
{
	void *generation = current_generation();
	enum outcome outcome = OUTCOME_NONE;
	__u32 egress = 0;

	if (stands_aside(generation))
		outcome = set_aside(ctx);
	if (outcome == OUTCOME_NONE)
		outcome = hastened(ctx, generation, &egress);
	if (sent_on(outcome))
		return ctx_send(ctx, egress, !leaves(egress));
	if (outcome == OUTCOME_NONE)
		outcome = balance(ctx, generation, &egress);
	trace_end(ctx, outcome);
	count_outcome(outcome, ctx_packets(ctx));
	return verdict(ctx, outcome, egress);
}
