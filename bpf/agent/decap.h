/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Decapsulates IPIP and GUE. */
#pragma once

#include <linux/udp.h>

#include "maps.h"
#include "read.h"

/* GUE's port (IANA), and the first byte's bits that mean variant 1 of draft-ietf-intarea-gue: an IP packet follows the
 * UDP header at once. They are part of that packet's version. */
#define AGENT_GUE_PORT 6080
#define AGENT_GUE_VARIANT 0xc0
#define AGENT_GUE_VARIANT_1 0x40

/* The last two bits of the differentiated services field, RFC 3168 section 5. */
#define AGENT_ECN 3
#define AGENT_ECN_ECT1 1
#define AGENT_ECN_ECT0 2
#define AGENT_ECN_CE 3

/* agent_tunnel returns the mode whose tunnel a packet may belong to. */
static __always_inline enum agent_mode agent_tunnel(ctx_t *ctx, const struct agent_ip *outer)
{
	struct udphdr udp;

	if (outer->protocol == IPPROTO_IPIP || outer->protocol == IPPROTO_IPV6)
		return agent_has_mode(AGENT_MODE_IPIP) ? AGENT_MODE_IPIP : AGENT_MODE_PLAIN;
	if (outer->protocol != IPPROTO_UDP || outer->later || !agent_has_mode(AGENT_MODE_GUE))
		return AGENT_MODE_PLAIN;
	if (outer->length < outer->header + sizeof(udp) ||
	    bpf_skb_load_bytes(ctx, ETH_HLEN + outer->header, &udp, sizeof(udp)))
		return AGENT_MODE_PLAIN;
	return udp.dest == bpf_htons(AGENT_GUE_PORT) ? AGENT_MODE_GUE : AGENT_MODE_PLAIN;
}

/* agent_ecn is the ECN field of the decapsulated packet, RFC 6040 section 4.2; -1 for a packet that must be dropped. */
static __always_inline int agent_ecn(__u8 outer, __u8 inner)
{
	outer &= AGENT_ECN;
	inner &= AGENT_ECN;
	if (outer == AGENT_ECN_CE)
		return inner ? AGENT_ECN_CE : -1;
	if (outer == AGENT_ECN_ECT1 && inner == AGENT_ECN_ECT0)
		return AGENT_ECN_ECT1;
	return inner;
}

/* agent_set_ds changes the differentiated services field of the packet after
 * the Ethernet header. */
static __always_inline long agent_set_ds(ctx_t *ctx, bool ipv6, __be16 head, __u8 ds)
{
	__be16 changed;

	if (ipv6) {
		changed = (head & bpf_htons(0xf00f)) | bpf_htons((__u16)ds << 4);
		/* No checksum in the packet covers this field; one that a network
		 * card has taken of the whole packet does. */
		return bpf_skb_store_bytes(ctx, ETH_HLEN, &changed, sizeof(changed),
					   BPF_F_RECOMPUTE_CSUM);
	}
	changed = (head & bpf_htons(0xff00)) | bpf_htons(ds);
	/* The sum of a whole IPv4 header does not change with its fields. */
	return bpf_l3_csum_replace(ctx, ETH_HLEN + offsetof(struct iphdr, check), head, changed,
				   sizeof(changed)) ||
	       bpf_skb_store_bytes(ctx, ETH_HLEN, &changed, sizeof(changed), 0);
}

/* agent_remove_outer removes everything between the Ethernet header and the inner packet at `at`.
 *
 * Where the families differ, skb->protocol has to change to the inner packet's, or the kernel would deliver it to the
 * other protocol. bpf_skb_adjust_room has flags for that only since Linux 6.3, and before that it also refuses an inner
 * IPv4 packet shorter than an IPv6 header. A redirect to the interface's own ingress makes the kernel parse the packet
 * again, but then every packet runs through the programs here twice, and two tunnels would be decapsulated where one is
 * allowed. bpf_skb_change_proto, made for NAT64, changes it in every kernel since 4.8: it also makes the first header
 * shorter or longer by the difference of the families, which is then removed with the rest. */
static __always_inline long agent_remove_outer(ctx_t *ctx, __u32 at, bool from6, bool to6)
{
	__s32 length = at - ETH_HLEN;
	__be16 type = to6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);

	if (from6 != to6) {
		if (bpf_skb_change_proto(ctx, type, 0))
			return -1;
		length += to6 ? 20 : -20;
	}
	/* The size of GSO segments stays: none of them grows into the room of the removed header. */
	if (bpf_skb_adjust_room(ctx, -length, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return -1;
	if (from6 == to6)
		return 0;
	return bpf_skb_store_bytes(ctx, offsetof(struct ethhdr, h_proto), &type, sizeof(type), 0);
}

/* agent_decap_ip removes the outer headers of an inner packet of one family at `at`, if it is for a VIP. `room` is the
 * length of the inner packet according to the outer headers. */
static __always_inline enum agent_outcome agent_decap_ip(ctx_t *ctx, const struct agent_ip *outer,
							 __u32 at, __u32 room, bool from6, bool to6)
{
	__u32 min_length = to6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	struct agent_ip inner;
	int ecn;

	if (to6 ? !agent_read6(ctx, at, &inner) : !agent_read4(ctx, at, &inner))
		return AGENT_PASSED_MALFORMED;
	if (!(agent_roles(&inner.destination) & AGENT_ROLE_VIP))
		return AGENT_PASSED_NOT_VIP;
	if (!agent_is_complete(&inner, min_length, room))
		return AGENT_DROPPED_MALFORMED;
	/* Datagrams of GUE, merged into one with a single outer header: behind
	 * the first inner packet there is another. */
	if (ctx->gso_size && inner.length != room)
		return AGENT_DROPPED_AGGREGATE;
	ecn = agent_ecn(outer->ds, inner.ds);
	if (ecn < 0)
		return AGENT_DROPPED_CONGESTED;
	if (agent_remove_outer(ctx, at, from6, to6))
		return AGENT_DROPPED_NO_ROOM;
	if (ecn != (inner.ds & AGENT_ECN) &&
	    agent_set_ds(ctx, to6, inner.head, (inner.ds & ~AGENT_ECN) | ecn))
		return AGENT_DROPPED_NO_ROOM;
	return AGENT_ACCEPTED;
}

/* agent_decap decapsulates a packet of a tunnel, and returns the outcome. */
static __always_inline enum agent_outcome agent_decap(ctx_t *ctx, const struct agent_ip *outer,
						      enum agent_mode mode, bool from6)
{
	__u32 at = ETH_HLEN + outer->header, room = outer->length - outer->header;
	struct udphdr udp;
	__u32 length;
	__u8 first;

	if (!(agent_roles(&outer->destination) & AGENT_ROLE_OWN))
		return AGENT_PASSED_NOT_LOCAL;
	/* Only the kernel can reassemble fragments. */
	if (outer->fragment)
		return AGENT_PASSED_FRAGMENT;
	if (mode == AGENT_MODE_IPIP) {
		if (outer->protocol == IPPROTO_IPV6)
			return agent_decap_ip(ctx, outer, at, room, from6, true);
		return agent_decap_ip(ctx, outer, at, room, from6, false);
	}
	/* The UDP checksum is not verified: the inner packet has its own, and senders of GUE leave it 0 (RFC 6935). */
	if (bpf_skb_load_bytes(ctx, at, &udp, sizeof(udp)))
		return AGENT_PASSED_MALFORMED;
	length = agent_length(ctx, at, 0, udp.len);
	if (length <= sizeof(udp) || length > room)
		return AGENT_PASSED_MALFORMED;
	at += sizeof(udp);
	room = length - sizeof(udp);
	if (bpf_skb_load_bytes(ctx, at, &first, sizeof(first)))
		return AGENT_PASSED_MALFORMED;
	if ((first & AGENT_GUE_VARIANT) != AGENT_GUE_VARIANT_1)
		return AGENT_PASSED_OTHER_GUE;
	if (first >> 4 == 6)
		return agent_decap_ip(ctx, outer, at, room, from6, true);
	return agent_decap_ip(ctx, outer, at, room, from6, false);
}
