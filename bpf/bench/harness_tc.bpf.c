// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The measuring harness in TC. */
#include <stdbool.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>

#include "../lib/ctx_tc.h"

/* From Linux 6.5's bpf.h; an older kernel refuses them. */
#define DECAP_L3_IPV4 (1ULL << 7)
#define DECAP_L3_IPV6 (1ULL << 8)

/* An encapsulation of the other family has changed the socket buffer's protocol. */
static __always_inline long move_start(ctx_t *ctx, int by, __be16 type)
{
	__u64 flags = 0;

	if (ctx->protocol != type)
		flags = type == bpf_htons(ETH_P_IP) ? DECAP_L3_IPV4 : DECAP_L3_IPV6;
	return bpf_skb_adjust_room(ctx, -by, BPF_ADJ_ROOM_MAC, flags);
}

/* The kernel has taken a frame's tag from its bytes before TC sees it. */
static __always_inline bool prepare(ctx_t *ctx, __u32 tag)
{
	if (!tag || ctx->vlan_present)
		return true;
	return !bpf_skb_vlan_push(ctx, bpf_htons(ETH_P_8021Q), tag);
}

#include "harness.h"

SEC(CTX_SECTION)
int harness_tc(ctx_t *ctx)
{
	if (next_packet(ctx))
		bpf_tail_call(ctx, &under_test, 0);
	return CTX_DROP;
}

SEC(CTX_SECTION)
int record_tc(ctx_t *ctx)
{
	if (record(ctx))
		bpf_tail_call(ctx, &under_test, 0);
	return CTX_DROP;
}

SEC(CTX_SECTION)
int replay_tc(ctx_t *ctx)
{
	if (replay(ctx))
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
	return swap_macs(ctx) ? ctx_send(ctx, 0, true) : CTX_DROP;
}

SEC(CTX_SECTION)
int line_tc(ctx_t *ctx)
{
	return read_line() ? CTX_PASS : CTX_DROP;
}

/* adjust_tc reserves headroom for an outer IPv4 header by bpf_skb_adjust_room, and writes none. It first sets the flag
 * BPF_F_ADJ_ROOM_ENCAP_L3_IPV4, as an encapsulation does; a socket buffer whose encapsulation flag is already set
 * refuses that flag, and gets the headroom without it. */
SEC(CTX_SECTION)
int adjust_tc(ctx_t *ctx)
{
	if (bpf_skb_adjust_room(ctx, GROWTH, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_ENCAP_L3_IPV4) &&
	    bpf_skb_adjust_room(ctx, GROWTH, BPF_ADJ_ROOM_MAC, 0))
		return CTX_DROP;
	return CTX_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
