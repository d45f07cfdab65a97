/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet from its arrival to the kernel's verdict. Include after one of the ctx_*.h
 * headers. */
#pragma once

#include "failopen.h"
#include "balance.h"
#include "shortcut.h"
#include "check/turn.h"

/* verdict is the return code to the kernel for an outcome. */
static __always_inline int verdict(const ctx_t *ctx, enum outcome outcome, __u32 egress)
{
	if (sent_on(outcome))
		return ctx_send(ctx, egress, !leaves(egress));
	if (outcome >= OUTCOME_ANSWERED_TOO_BIG && outcome <= OUTCOME_UNREACHABLE_CONNECTION_LIMIT)
		return ctx_send(ctx, 0, true);
	return outcome <= OUTCOME_PASSED_TO_ROUTE ? CTX_PASS : CTX_DROP;
}

/* leave_alone ends a packet that is for no service, where it may answer a health check. It is a call of its own, so
 * that its variables are not on its caller's stack. */
__noinline int leave_alone(ctx_t *ctx, __u32 outcome)
{
	__u32 check = turn_answer(ctx);

	trace_end(ctx, outcome);
	count_outcome(outcome, ctx_packets(ctx));
	return check ? ctx_send(ctx, check, false) : CTX_PASS;
}

/* run is the body of both programs, for XDP and for TC. */
static __always_inline int run(ctx_t *ctx)
{
	void *generation = current_generation();
	enum outcome outcome = OUTCOME_NONE;
	__u32 egress = 0;

	if (fails_open(generation))
		outcome = fail_open(ctx);
	if (outcome == OUTCOME_NONE)
		outcome = take_shortcut(ctx, generation, &egress);
	if (sent_on(outcome))
		return ctx_send(ctx, egress, !leaves(egress));
	if (outcome == OUTCOME_NONE)
		outcome = balance(ctx, generation, &egress);
	if (loaded.checks && may_answer(outcome))
		return leave_alone(ctx, outcome);
	trace_end(ctx, outcome);
	count_outcome(outcome, ctx_packets(ctx));
	return verdict(ctx, outcome, egress);
}
