// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The measuring harness in TC. */
#include "ctx_tc.h"

#include "harness.h"

SEC(CTX_SECTION)
int harness_tc(ctx_t *ctx)
{
	if (next_packet(ctx))
		bpf_tail_call(ctx, &under_test, 0);
	return CTX_DROP;
}

SEC(CTX_SECTION)
int empty_tc(ctx_t *ctx)
{
	return CTX_PASS;
}

SEC(CTX_SECTION)
int macswap_tc(ctx_t *ctx)
{
	return swap_macs(ctx) ? ctx_transmit(ctx) : CTX_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
