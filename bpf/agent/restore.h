/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Restores the VIP that the balancer has replaced by this host's address, and encoded as the DSCP. */
#pragma once

#include <linux/tcp.h>
#include <linux/udp.h>

#include "maps.h"
#include "read.h"
#include "decap.h"

/* agent_dscp_vip looks up the VIP of the packet's DSCP, and returns false if there is none of its family. */
static __always_inline bool agent_dscp_vip(const struct agent_ip *ip, bool ipv6,
					   struct agent_address *vip)
{
	__u8 point = ip->ds >> 2;

	if (!point || !agent_has_mode(AGENT_MODE_DSCP))
		return false;
	if (ipv6) {
		vip->word[0] = loaded.dscp_vip6[point].word[0];
		vip->word[1] = loaded.dscp_vip6[point].word[1];
		vip->word[2] = loaded.dscp_vip6[point].word[2];
		vip->word[3] = loaded.dscp_vip6[point].word[3];
		return vip->word[0] | vip->word[1] | vip->word[2] | vip->word[3];
	}
	vip->word[0] = 0;
	vip->word[1] = 0;
	vip->word[2] = bpf_htonl(0xffff);
	vip->word[3] = loaded.dscp_vip4[point];
	return vip->word[3];
}

/* agent_checksum is where in the frame the transport checksum is that covers
 * the address: 0 if there is none, -1 if there should be, and -2 if the packet
 * is of a protocol that no balancer marks. Of ICMP only errors are sent with a
 * mark; neighbour discovery bears code points of its own (48, often). */
static __always_inline int agent_checksum(ctx_t *ctx, const struct agent_ip *ip, bool ipv6)
{
	__u32 at = ETH_HLEN + ip->header, min_length;
	int checksum;
	__u8 type;

	switch (ip->protocol) {
	case IPPROTO_TCP:
		checksum = at + offsetof(struct tcphdr, check);
		min_length = sizeof(struct tcphdr);
		break;
	case IPPROTO_UDP:
		checksum = at + offsetof(struct udphdr, check);
		min_length = sizeof(struct udphdr);
		break;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if (ip->fragment || ipv6 != (ip->protocol == IPPROTO_ICMPV6) ||
		    bpf_skb_load_bytes(ctx, at, &type, sizeof(type)))
			return -2;
		if (ipv6 ? type < 1 || type > 4 : type != 3 && type != 11 && type != 12)
			return -2;
		checksum = ipv6 ? at + 2 : 0;
		min_length = 8;
		break;
	default:
		return -2;
	}
	if (ip->later)
		return 0;
	return ip->length < ip->header + min_length ? -1 : checksum;
}

/* agent_set4 changes the destination, the code point to 0, and all checksums. */
static __always_inline long agent_set4(ctx_t *ctx, const struct agent_ip *ip,
				       const struct agent_address *vip, int checksum, __u64 flags)
{
	const __u32 header = ETH_HLEN + offsetof(struct iphdr, check);
	__be32 old = ip->destination.word[3], new = vip->word[3];

	if (checksum && bpf_l4_csum_replace(ctx, checksum, old, new, flags | sizeof(new)))
		return -1;
	return bpf_l3_csum_replace(ctx, header, old, new, sizeof(new)) ||
	       bpf_skb_store_bytes(ctx, ETH_HLEN + offsetof(struct iphdr, daddr), &new, sizeof(new),
				   0) ||
	       agent_set_ds(ctx, false, ip->head, ip->ds & AGENT_ECN);
}

/* agent_set6 does the same for IPv6. There, address and transport checksum change by opposite amounts, and a network
 * card's sum of the whole packet (CHECKSUM_COMPLETE) stays the same. bpf_l4_csum_replace assumes IPv4, where the
 * header's own checksum absorbs the address, and would change that sum; BPF_F_IPV6 prevents that, but only since Linux
 * 6.16. The difference is added again, and also where there is no transport checksum. */
static __always_inline long agent_set6(ctx_t *ctx, struct agent_ip *ip, struct agent_address *vip,
				       int checksum, __u64 flags)
{
	__s64 difference = bpf_csum_diff(ip->destination.word, sizeof(*vip), vip->word, sizeof(*vip), 0);

	if (difference < 0 ||
	    (checksum && bpf_l4_csum_replace(ctx, checksum, 0, difference, flags)))
		return -1;
	/* Refused where there is no such sum. */
	bpf_csum_update(ctx, difference);
	return bpf_skb_store_bytes(ctx, ETH_HLEN + offsetof(struct ipv6hdr, daddr), vip,
				   sizeof(*vip), 0) ||
	       agent_set_ds(ctx, true, ip->head, ip->ds & AGENT_ECN);
}

/* agent_restore restores the VIP of a packet whose DSCP encodes one, and returns the outcome. */
static __always_inline enum agent_outcome agent_restore(ctx_t *ctx, struct agent_ip *ip, bool ipv6,
							struct agent_address *vip)
{
	int checksum = agent_checksum(ctx, ip, ipv6);
	__u64 flags = BPF_F_PSEUDO_HDR;

	/* A packet for a VIP has not been through a balancer of this mode. */
	if (checksum == -2 ||
	    (agent_roles(&ip->destination) & (AGENT_ROLE_OWN | AGENT_ROLE_VIP)) != AGENT_ROLE_OWN)
		return AGENT_PASSED_PLAIN;
	if (checksum == -1)
		return AGENT_DROPPED_MALFORMED;
	/* A UDP checksum of 0 means none, and stays. */
	if (ip->protocol == IPPROTO_UDP)
		flags |= BPF_F_MARK_MANGLED_0;
	if (ipv6 ? agent_set6(ctx, ip, vip, checksum, flags) :
		   agent_set4(ctx, ip, vip, checksum, flags))
		return AGENT_DROPPED_NO_ROOM;
	return AGENT_ACCEPTED;
}
