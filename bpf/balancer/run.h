/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet from its arrival to the verdict for the kernel. Include after one of the ctx_*.h headers. */
#pragma once

#include "failopen.h"
#include "balance.h"
#include "shortcut.h"
#include "check/redirect.h"

/* verdict is the return code to the kernel for an outcome. */
static __always_inline int verdict(const ctx_t *ctx, enum outcome outcome, __u32 egress)
{
	if (is_sent(outcome))
		return ctx_send(ctx, egress, !is_other_interface(egress));
	if (outcome >= OUTCOME_ANSWERED_TOO_BIG && outcome <= OUTCOME_UNREACHABLE_CONNECTION_LIMIT)
		return ctx_send(ctx, 0, true);
	return outcome <= OUTCOME_PASSED_TO_ROUTE ? CTX_PASS : CTX_DROP;
}

/* pass_unserved passes a packet that is for no service to the kernel, or redirects it where it answers a health check.
 * It is not inlined, so that its variables are not on its caller's stack. */
__noinline int pass_unserved(ctx_t *ctx, __u32 outcome)
{
	__u32 check = redirect_answer(ctx);

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

	capture_skip(ctx);
	if (is_of_own_vlan(ctx))
		return CTX_PASS;
	if (fails_open(generation))
		outcome = fail_open(ctx);
	if (outcome == OUTCOME_NONE)
		outcome = try_shortcut(ctx, generation, &egress);
	if (is_sent(outcome))
		return ctx_send(ctx, egress, !is_other_interface(egress));
	if (outcome == OUTCOME_NONE)
		outcome = balance(ctx, generation, &egress);
	if (loaded.checks && may_answer(outcome))
		return pass_unserved(ctx, outcome);
	trace_end(ctx, outcome);
	count_outcome(outcome, ctx_packets(ctx));
	return verdict(ctx, outcome, egress);
}
