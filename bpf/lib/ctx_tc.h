/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One of the two headers that depend on the hook: packets as TC sees them. */
#pragma once

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_core_read.h>

#include "ctx.h"
#include "kernel.h"

#define CTX_SECTION "tc"
/* TC_ACT_UNSPEC is TCX_NEXT: later programs get the packet too. TC_ACT_OK would skip them. */
#define CTX_PASS TC_ACT_UNSPEC
#define CTX_DROP TC_ACT_SHOT
/* A VLAN tag (IEEE 802.1Q) is in the frame's metadata, not in the frame. */
#define CTX_TAGS false
#define CTX_ONLY_OURS false
/* Nearly all packets can take a shorter path here: see shortcut. */
#define CTX_SHORTCUT 1
/* Even the headers of a packet may be outside the linear part: see ctx_linear. */
#define CTX_PULLS 1

typedef struct __sk_buff ctx_t;

static __always_inline void *ctx_data(const ctx_t *ctx)
{
	return CTX_POINTER(data);
}

static __always_inline void *ctx_data_end(const ctx_t *ctx)
{
	return CTX_POINTER(data_end);
}

static __always_inline __u64 ctx_length(ctx_t *ctx)
{
	return ctx->len;
}

/* ctx_linear makes the first `length` bytes readable, or fewer where the packet is shorter. Even the headers of a
 * socket buffer may be in pages. */
static __always_inline long ctx_linear(ctx_t *ctx, __u32 length)
{
	__u32 needed = length < ctx->len ? length : ctx->len;

	/* ctx->data and data_end are offsets to the compiler and pointers to the verifier; their difference is a number to
	 * both. */
	if (ctx_data_end(ctx) - ctx_data(ctx) >= needed)
		return 0;
	return bpf_skb_pull_data(ctx, needed);
}

/* ctx_gso returns the length of the payload of a GSO packet's segments, in bytes; 0 for any other packet. The load is
 * hidden from the compiler, which would keep the field's address for several of them: verifiers refuse that. */
static __always_inline __u32 ctx_gso(const ctx_t *ctx)
{
	__u64 size;

	asm volatile("%0 = *(u32 *)(%1 + %2)" : "=r"(size) : "r"(ctx), "i"(offsetof(ctx_t, gso_size)));
	return size;
}

/* GSO_HEADERS4 and GSO_HEADERS6 are the lengths of the headers before the payload of TCP without options. */
#define GSO_HEADERS4 54
#define GSO_HEADERS6 74

/* ctx_packets counts the segments that a GSO packet will become. virtio-net and netfront do not count those of a merged
 * packet (SKB_GSO_DODGY, include/linux/virtio_net.h): here they are counted by its length, which may give one too
 * many, as options are taken for payload. */
static __always_inline __u64 ctx_packets(const ctx_t *ctx)
{
	__u32 payload = ctx_gso(ctx), headers;

	if (!payload)
		return 1;
	if (ctx->gso_segs)
		return ctx->gso_segs;
	headers = ctx->protocol == bpf_htons(ETH_P_IPV6) ? GSO_HEADERS6 : GSO_HEADERS4;
	return ctx->len > headers ? (ctx->len - headers + payload - 1) / payload : 1;
}

static __always_inline __u32 ctx_interface(const ctx_t *ctx)
{
	return ctx->ifindex;
}

/* ctx_grow makes room between the link header, which moves, and the IP header. The flags say that the room is for a
 * tunnel's header, without which the kernel could not segment a GSO packet; it makes the segments of TCP smaller by as
 * much. A packet that is in a tunnel already, which was not encapsulated by us, accepts no second flag. */
static __always_inline long ctx_grow(ctx_t *ctx, __u32 by, bool ipv6, bool udp, bool datagram)
{
	__u64 flags = ipv6 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;
	long error;

	if (udp)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	if (datagram && ctx->gso_size)
		flags |= BPF_F_ADJ_ROOM_FIXED_GSO;
	error = bpf_skb_adjust_room(ctx, by, BPF_ADJ_ROOM_MAC, flags);
	return error ? bpf_skb_adjust_room(ctx, by, BPF_ADJ_ROOM_MAC, 0) : 0;
}

/* ctx_prepend is ctx_grow() for frames that become another packet, as for ICMP errors. */
static __always_inline long ctx_prepend(ctx_t *ctx, __u32 by)
{
	return bpf_skb_adjust_room(ctx, by, BPF_ADJ_ROOM_MAC, 0);
}

/* ctx_cut cuts a longer frame to `length` bytes. */
static __always_inline long ctx_cut(ctx_t *ctx, __u32 length)
{
	return bpf_skb_change_tail(ctx, length, 0);
}

/* ctx_tagged reports whether the frame has a VLAN tag, which has to be removed for another link. */
static __always_inline bool ctx_tagged(const ctx_t *ctx)
{
	return ctx->vlan_present;
}

/* ctx_vlan returns the protocol of the frame's VLAN tag, in the upper 16 bits, and its VLAN ID, in host byte order; 0
 * for a frame without a tag. */
static __always_inline __u32 ctx_vlan(const ctx_t *ctx)
{
	return ctx_tagged(ctx) ? (__u32)bpf_ntohs(ctx->vlan_proto) << 16 | (ctx->vlan_tci & 0xfff) : 0;
}

/* ctx_untag removes the VLAN tag. */
static __always_inline long ctx_untag(ctx_t *ctx, __u32 tag)
{
	return ctx_tagged(ctx) ? bpf_skb_vlan_pop(ctx) : 0;
}

/* summed is the state of a packet's transport checksum (include/linux/skbuff.h, CHECKSUM_*): not verified; verified;
 * the sum of the whole packet is known, and changes with it; or the checksum is not completed yet, and is the sum of
 * the pseudo header. */
enum summed { SUMMED_NONE, SUMMED_UNNECESSARY, SUMMED_COMPLETE, SUMMED_PARTIAL };

/* Since Linux 6.2. */
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

/* ctx_fix_here is ctx_fix_l4 without a helper call, which costs about 20 ns on processors whose returns must not be
 * predicted; false if the helper is needed. */
static __always_inline bool ctx_fix_here(ctx_t *ctx, __u32 at, __u64 pseudo, __u64 plain, bool udp)
{
	__u16 *check = ctx_data(ctx) + (at & 0x7fff);
	const struct sk_buff *packet;
	__u32 summed;

	if (!bpf_cast_to_kern_ctx || (void *)(check + 1) > ctx_data_end(ctx))
		return false;
	packet = bpf_cast_to_kern_ctx(ctx);
	summed = BPF_CORE_READ_BITFIELD(packet, ip_summed);
	if (summed == SUMMED_COMPLETE)
		return false;
	checksum_write(check, summed == SUMMED_PARTIAL ? checksum_fold(*check + pseudo) :
						checksum_fix(*check, pseudo + plain), udp);
	return true;
}

/* ctx_fix_l4 corrects a transport checksum, `at` bytes into the frame, for changes of the pseudo header (`pseudo`) and
 * of the rest that it covers (`plain`). */
static __always_inline long ctx_fix_l4(ctx_t *ctx, __u32 at, __u64 pseudo, __u64 plain, bool udp)
{
	__u64 udp_flag = udp ? BPF_F_MARK_MANGLED_0 : 0;

	if (ctx_fix_here(ctx, at, pseudo, plain, udp))
		return 0;
	if (plain && bpf_l4_csum_replace(ctx, at, 0, checksum_fold32(plain), udp_flag))
		return -1;
	if (pseudo && bpf_l4_csum_replace(ctx, at, 0, checksum_fold32(pseudo),
					  udp_flag | BPF_F_PSEUDO_HDR))
		return -1;
	return 0;
}

static __always_inline int ctx_send(const ctx_t *ctx, __u32 interface, bool same)
{
	return bpf_redirect(same ? ctx->ifindex : interface, 0);
}

/* ctx_load copies bytes from the frame, in the linear part or not. */
static __always_inline long ctx_load(ctx_t *ctx, __u32 offset, void *to, __u32 length)
{
	return bpf_skb_load_bytes(ctx, offset, to, length);
}
