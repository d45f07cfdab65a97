// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The measuring harness in XDP. */
#include <stdbool.h>

#include "../lib/ctx_xdp.h"

static __always_inline long move_start(ctx_t *ctx, int by, __be16 type)
{
	return bpf_xdp_adjust_head(ctx, by);
}

static __always_inline bool prepare(ctx_t *ctx, __u32 tag)
{
	return true;
}

#include "harness.h"

SEC(CTX_SECTION)
int harness_xdp(ctx_t *ctx)
{
	if (next_packet(ctx))
		bpf_tail_call(ctx, &under_test, 0);
	return CTX_DROP;
}

SEC(CTX_SECTION)
int record_xdp(ctx_t *ctx)
{
	if (record(ctx))
		bpf_tail_call(ctx, &under_test, 0);
	return CTX_DROP;
}

SEC(CTX_SECTION)
int replay_xdp(ctx_t *ctx)
{
	if (replay(ctx))
		bpf_tail_call(ctx, &under_test, 0);
	return CTX_DROP;
}

SEC(CTX_SECTION)
int empty_xdp(ctx_t *ctx)
{
	return CTX_PASS;
}

SEC(CTX_SECTION)
int macswap_xdp(ctx_t *ctx)
{
	return swap_macs(ctx) ? ctx_send(ctx, 0, true) : CTX_DROP;
}

SEC(CTX_SECTION)
int line_xdp(ctx_t *ctx)
{
	return read_line() ? CTX_PASS : CTX_DROP;
}

/* adjust_xdp reserves headroom for an outer IPv4 header, and writes none. */
SEC(CTX_SECTION)
int adjust_xdp(ctx_t *ctx)
{
	return bpf_xdp_adjust_head(ctx, -GROWTH) ? CTX_DROP : CTX_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
