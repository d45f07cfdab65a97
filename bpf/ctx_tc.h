/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One of the two headers that know the hook: packets as TC sees them. */
#pragma once

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#define CTX_SECTION "tc"
/* TC_ACT_UNSPEC is TCX_NEXT: programs after this one see the packet too.
 * TC_ACT_OK would hide it from them. */
#define CTX_PASS TC_ACT_UNSPEC
#define CTX_DROP TC_ACT_SHOT

typedef struct __sk_buff ctx_t;

static __always_inline void *ctx_data(const ctx_t *ctx)
{
	return (void *)(long)ctx->data;
}

static __always_inline void *ctx_data_end(const ctx_t *ctx)
{
	return (void *)(long)ctx->data_end;
}

static __always_inline __u64 ctx_length(ctx_t *ctx)
{
	return ctx->len;
}

/* ctx_linear makes the first `length` bytes readable, or fewer where the
 * packet is shorter. A socket buffer may keep even its headers in pages. */
static __always_inline long ctx_linear(ctx_t *ctx, __u32 length)
{
	__u32 wanted = length < ctx->len ? length : ctx->len;

	/* ctx->data and data_end are offsets to the compiler, pointers to the
	 * verifier: their difference is a number to both. */
	if (ctx_data_end(ctx) - ctx_data(ctx) >= wanted)
		return 0;
	return bpf_skb_pull_data(ctx, wanted);
}

/* ctx_packets counts the segments that a GSO packet will become. */
static __always_inline __u64 ctx_packets(const ctx_t *ctx)
{
	return ctx->gso_segs > 1 ? ctx->gso_segs : 1;
}

static __always_inline int ctx_transmit(const ctx_t *ctx)
{
	return bpf_redirect(ctx->ifindex, 0);
}
