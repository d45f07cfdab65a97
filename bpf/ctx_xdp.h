/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One of the two headers that know the hook: packets as XDP sees them. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define CTX_SECTION "xdp.frags"
#define CTX_PASS XDP_PASS
#define CTX_DROP XDP_DROP

typedef struct xdp_md ctx_t;

static __always_inline void *ctx_data(const ctx_t *ctx)
{
	return (void *)(long)ctx->data;
}

static __always_inline void *ctx_data_end(const ctx_t *ctx)
{
	return (void *)(long)ctx->data_end;
}

/* ctx_length returns the whole frame's length, fragments included. It is a
 * function call: ask only where the linear part does not answer. */
static __always_inline __u64 ctx_length(ctx_t *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

/* ctx_linear makes the first `length` bytes readable. A driver that runs XDP
 * has the headers in the linear part; there is nothing to pull. */
static __always_inline long ctx_linear(ctx_t *ctx, __u32 length)
{
	return 0;
}

/* ctx_packets returns how many packets of the wire this frame stands for. */
static __always_inline __u64 ctx_packets(const ctx_t *ctx)
{
	return 1;
}

/* ctx_transmit sends the frame back out of the interface it came from. */
static __always_inline int ctx_transmit(const ctx_t *ctx)
{
	return XDP_TX;
}
