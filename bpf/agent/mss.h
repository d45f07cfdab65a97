/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Clamps the MSS, so that clients' segments fit the tunnel: the MSS of a SYN-ACK limits the client's segments, and the
 * SYN-ACK goes to the client directly, past the balancer. */
#pragma once

#include <linux/tcp.h>

#include "maps.h"
#include "read.h"

/* TCP options, RFC 9293 section 3.1: kinds, and how many are walked. */
#define AGENT_OPTION_END 0
#define AGENT_OPTION_NOP 1
#define AGENT_OPTION_MSS 2
#define AGENT_OPTIONS_MAX 8
#define AGENT_OPTIONS_BYTES 40
/* SYN in the flag byte. */
#define AGENT_SYN 0x02

/* agent_syn reads a packet for a client that is a SYN: the offsets of its TCP header and its options, and the options'
 * length. It returns false for all others. */
static __always_inline bool agent_syn(ctx_t *ctx, bool ipv6, __u32 *at, __u32 *options)
{
	struct agent_address source = { .word = { 0, 0, bpf_htonl(0xffff) } };
	struct agent_ip ip;
	__u8 tcp[20];
	long error;

	if (agent_read(ctx, ipv6, &ip) != AGENT_NONE || ip.protocol != IPPROTO_TCP || ip.fragment)
		return false;
	*at = ETH_HLEN + ip.header;
	if (bpf_skb_load_bytes(ctx, *at, tcp, sizeof(tcp)) || !(tcp[13] & AGENT_SYN))
		return false;
	*options = (tcp[12] >> 4) * 4 - sizeof(tcp);
	if (*options > AGENT_OPTIONS_BYTES || ip.header + sizeof(tcp) + *options > ip.length)
		return false;
	if (ipv6)
		error = bpf_skb_load_bytes(ctx, ETH_HLEN + offsetof(struct ipv6hdr, saddr), &source,
					   sizeof(source));
	else
		error = bpf_skb_load_bytes(ctx, ETH_HLEN + offsetof(struct iphdr, saddr),
					   &source.word[3], sizeof(source.word[3]));
	return !error && agent_roles(&source) & AGENT_ROLE_VIP;
}

/* agent_find_mss returns where the value of the MSS option is, counted from the
 * first option; 0 if there is none. Beyond the options the bytes are 0. */
static __always_inline __u32 agent_find_mss(const __u8 bytes[64], __u32 options)
{
	__u32 at = 0;

	for (int i = 0; i < AGENT_OPTIONS_MAX; i++) {
		__u8 kind, length;

		if (at + 1 >= AGENT_OPTIONS_BYTES)
			return 0;
		kind = bytes[at];
		length = bytes[at + 1];
		if (kind == AGENT_OPTION_END)
			return 0;
		if (kind == AGENT_OPTION_NOP) {
			at++;
			continue;
		}
		if (length < 2 || at + length > options)
			return 0;
		if (kind == AGENT_OPTION_MSS)
			return length == 4 ? at + 2 : 0;
		at += length;
	}
	return 0;
}

/* agent_clamp lowers the MSS that a SYN-ACK announces to a client, where it exceeds the limit. */
static __always_inline enum agent_outcome agent_clamp(ctx_t *ctx, bool ipv6)
{
	__u16 announced, swapped, limit = loaded.mss;
	__u32 at, options, value;
	__u8 bytes[64] = {};

	if (!agent_syn(ctx, ipv6, &at, &options) || options < 4 || options > AGENT_OPTIONS_BYTES)
		return AGENT_NONE;
	/* Word by word: of a variable length, not every verifier sees that it cannot be 0. */
#pragma unroll
	for (__u32 i = 0; i < AGENT_OPTIONS_BYTES; i += 4) {
		if (i < options &&
		    bpf_skb_load_bytes(ctx, at + sizeof(struct tcphdr) + i, bytes + i, 4))
			return AGENT_NONE;
	}
	value = agent_find_mss(bytes, options);
	if (!value || value + 1 >= AGENT_OPTIONS_BYTES)
		return AGENT_NONE;
	announced = bytes[value] << 8 | bytes[value + 1];
	if (announced <= limit)
		return AGENT_NONE;
	announced = bpf_htons(announced);
	limit = bpf_htons(limit);
	swapped = limit;
	/* At an odd place each byte counts as the other half of a word. */
	if (value & 1) {
		announced = __builtin_bswap16(announced);
		swapped = __builtin_bswap16(limit);
	}
	if (bpf_l4_csum_replace(ctx, at + offsetof(struct tcphdr, check), announced, swapped,
				sizeof(limit)) ||
	    bpf_skb_store_bytes(ctx, at + sizeof(struct tcphdr) + value, &limit, sizeof(limit), 0))
		return AGENT_DROPPED_NO_ROOM;
	return AGENT_CLAMPED;
}
