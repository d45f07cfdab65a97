/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One of the two headers that depend on the hook: packets as XDP sees them. */
#pragma once

#include "ctx.h"

#define CTX_SECTION "xdp.frags"
#define CTX_PASS XDP_PASS
#define CTX_DROP XDP_DROP
/* A tag (IEEE 802.1Q) is in the frame. */
#define CTX_TAGS true
/* Frames can be redirected only to interfaces that run XDP. */
#define CTX_ONLY_OURS true
/* All packets take the same path: see shortcut. */
#define CTX_SHORTCUT 0
/* The headers can be read as they are: see ctx_linear. */
#define CTX_PULLS 0

typedef struct xdp_md ctx_t;

static __always_inline void *ctx_data(const ctx_t *ctx)
{
	return CTX_POINTER(data);
}

static __always_inline void *ctx_data_end(const ctx_t *ctx)
{
	return CTX_POINTER(data_end);
}

/* ctx_length returns the length of the frame with all its fragments. It is a helper call: use it only where the length
 * of the linear part does not suffice. */
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

/* ctx_packets returns the number of packets on the wire that this frame stands for. */
static __always_inline __u64 ctx_packets(const ctx_t *ctx)
{
	return 1;
}

/* ctx_gso returns the length of the payload of a GSO packet's segments, in bytes. There are no such packets in XDP. */
static __always_inline __u32 ctx_gso(const ctx_t *ctx)
{
	return 0;
}

/* ctx_interface returns the index of the interface that the frame came in on. */
static __always_inline __u32 ctx_interface(const ctx_t *ctx)
{
	return ctx->ingress_ifindex;
}

/* ctx_grow makes room at the front. The frame's link header stays where it was, behind the room, and is to be written
 * again. */
static __always_inline long ctx_grow(ctx_t *ctx, __u32 by, bool ipv6, bool udp, bool datagram)
{
	return bpf_xdp_adjust_head(ctx, -(int)by);
}

/* ctx_prepend is ctx_grow() for frames that become another packet, as for ICMP errors. */
static __always_inline long ctx_prepend(ctx_t *ctx, __u32 by)
{
	return bpf_xdp_adjust_head(ctx, -(int)by);
}

/* ctx_cut cuts a longer frame to `length` bytes. */
static __always_inline long ctx_cut(ctx_t *ctx, __u32 length)
{
	return bpf_xdp_adjust_tail(ctx, -(int)(bpf_xdp_get_buff_len(ctx) - length));
}

/* ctx_tagged reports whether there is a tag in the frame's metadata: in XDP it is in the frame. */
static __always_inline bool ctx_tagged(const ctx_t *ctx) { return false; }

/* ctx_vlan returns 0: a VLAN interface runs no XDP of its own. */
static __always_inline __u32 ctx_vlan(const ctx_t *ctx) { return 0; }

/* ctx_untag removes `tag` bytes of a tag from the frame. The MAC addresses are to be written again. */
static __always_inline long ctx_untag(ctx_t *ctx, __u32 tag)
{
	return tag ? bpf_xdp_adjust_head(ctx, tag) : 0;
}

/* ctx_fix_l4 corrects a transport checksum, `at` bytes into the frame, for changes of the pseudo header (`pseudo`) and
 * of the rest that it covers (`plain`). */
static __always_inline long ctx_fix_l4(ctx_t *ctx, __u32 at, __u64 pseudo, __u64 plain, bool udp)
{
	__u16 *check = ctx_data(ctx) + (at & 0x7fff);

	if ((void *)(check + 1) > ctx_data_end(ctx))
		return -1;
	checksum_write(check, checksum_fix(*check, pseudo + plain), udp);
	return 0;
}

/* ctx_send sends the frame out of an interface; `same`: it is the interface that received the frame. */
static __always_inline int ctx_send(const ctx_t *ctx, __u32 interface, bool same)
{
	return same ? XDP_TX : bpf_redirect(interface, 0);
}

/* ctx_load copies bytes from the frame, in the linear part or not. */
static __always_inline long ctx_load(ctx_t *ctx, __u32 offset, void *to, __u32 length)
{
	return bpf_xdp_load_bytes(ctx, offset, to, length);
}
