/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* IP headers as the agent reads them: copied, since a socket buffer may keep even its headers in pages, and making them
 * linear would cost every packet of the host. Packets that are not for the agent are left to the kernel, which checks
 * more. */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>

#include "types.h"

/* Bits of the IPv4 fragment field: all that make a fragment, and the offset.
 * The same of the IPv6 fragment header. */
#define AGENT_IPV4_FRAGMENT 0x3fff
#define AGENT_IPV4_OFFSET 0x1fff
#define AGENT_IPV6_FRAGMENT 0xfff9
#define AGENT_IPV6_OFFSET 0xfff8
/* Extension headers that are walked; the balancer walks as many. */
#define AGENT_EXTENSIONS 4

/* agent_ip is a parsed IP header. */
struct agent_ip {
	struct agent_address destination;
	/* The length of the packet, and that of its headers before the transport header, in bytes. */
	__u32 length;
	__u32 header;
	/* First two bytes of the packet, of which the middle eight bits are IPv6's
	 * traffic class, and the last eight IPv4's type of service. */
	__be16 head;
	__u8 protocol;
	/* Differentiated services field: code point and ECN. */
	__u8 ds;
	bool fragment;
	/* A fragment without the transport header. */
	bool later;
};

/* agent_length is an IP packet's length. One that is too long for the header's field is a GSO packet, with 0 there (BIG
 * TCP): it ends with its buffer. */
static __always_inline __u32 agent_length(const ctx_t *ctx, __u32 at, __u32 fixed, __be16 field)
{
	if (!field && ctx->gso_size)
		return ctx->len - at;
	return fixed + bpf_ntohs(field);
}

/* agent_read4 reads the IPv4 header at `at`. It returns false if there is none. */
static __always_inline bool agent_read4(ctx_t *ctx, __u32 at, struct agent_ip *ip)
{
	struct iphdr header;

	if (bpf_skb_load_bytes(ctx, at, &header, sizeof(header)) || header.version != 4)
		return false;
	ip->destination.word[0] = 0;
	ip->destination.word[1] = 0;
	ip->destination.word[2] = bpf_htonl(0xffff);
	ip->destination.word[3] = header.daddr;
	ip->length = agent_length(ctx, at, 0, header.tot_len);
	ip->header = header.ihl * 4;
	ip->head = *(__be16 *)&header;
	ip->protocol = header.protocol;
	ip->ds = header.tos;
	ip->fragment = header.frag_off & bpf_htons(AGENT_IPV4_FRAGMENT);
	ip->later = header.frag_off & bpf_htons(AGENT_IPV4_OFFSET);
	return true;
}

/* agent_read6 reads the fixed IPv6 header at `at`. */
static __always_inline bool agent_read6(ctx_t *ctx, __u32 at, struct agent_ip *ip)
{
	struct ipv6hdr header;

	if (bpf_skb_load_bytes(ctx, at, &header, sizeof(header)) || header.version != 6)
		return false;
	__builtin_memcpy(&ip->destination, &header.daddr, sizeof(ip->destination));
	ip->length = agent_length(ctx, at, sizeof(header), header.payload_len);
	ip->header = sizeof(header);
	ip->head = *(__be16 *)&header;
	ip->protocol = header.nexthdr;
	ip->ds = bpf_ntohs(ip->head) >> 4;
	ip->fragment = false;
	ip->later = false;
	return true;
}

/* agent_is_complete reports whether a header's lengths are consistent with each other and with the length of the
 * frame. */
static __always_inline bool agent_is_complete(const struct agent_ip *ip, __u32 min_length, __u32 room)
{
	return ip->header >= min_length && ip->length >= ip->header && ip->length <= room;
}

/* agent_skip_extensions skips the extension headers of an IPv6 packet whose fixed header is at `at`, RFC 8200 section
 * 4.1. A routing header with segments left (its fourth byte) means that this host is not the final destination. */
static __always_inline enum agent_outcome agent_skip_extensions(ctx_t *ctx, __u32 at, struct agent_ip *ip)
{
	__u8 extension[8];

#pragma unroll
	for (int i = 0; i <= AGENT_EXTENSIONS; i++) {
		if (ip->protocol != IPPROTO_HOPOPTS && ip->protocol != IPPROTO_ROUTING &&
		    ip->protocol != IPPROTO_DSTOPTS && ip->protocol != IPPROTO_FRAGMENT)
			return AGENT_NONE;
		if (i == AGENT_EXTENSIONS)
			break;
		if (bpf_skb_load_bytes(ctx, at + ip->header, extension, sizeof(extension)))
			return AGENT_PASSED_MALFORMED;
		if (ip->protocol == IPPROTO_ROUTING && extension[3])
			break;
		if (ip->protocol == IPPROTO_FRAGMENT) {
			__be16 field = *(__be16 *)(extension + 2);

			ip->header += 8;
			ip->fragment = field & bpf_htons(AGENT_IPV6_FRAGMENT);
			ip->later = field & bpf_htons(AGENT_IPV6_OFFSET);
		} else {
			ip->header += (extension[1] + 1) * 8;
		}
		ip->protocol = extension[0];
		if (ip->header > ip->length)
			return AGENT_PASSED_MALFORMED;
		/* In a later fragment, payload follows and no headers. */
		if (ip->later)
			return AGENT_NONE;
	}
	return AGENT_PASSED_EXTENSION_HEADERS;
}

/* agent_read reads the header that follows Ethernet, as far as the transport
 * header. */
static __always_inline enum agent_outcome agent_read(ctx_t *ctx, bool ipv6, struct agent_ip *ip)
{
	__u32 room = ctx->len - ETH_HLEN;

	if (ipv6) {
		if (!agent_read6(ctx, ETH_HLEN, ip) || !agent_is_complete(ip, sizeof(struct ipv6hdr), room))
			return AGENT_PASSED_MALFORMED;
		return agent_skip_extensions(ctx, ETH_HLEN, ip);
	}
	if (!agent_read4(ctx, ETH_HLEN, ip) || !agent_is_complete(ip, sizeof(struct iphdr), room))
		return AGENT_PASSED_MALFORMED;
	return AGENT_NONE;
}
