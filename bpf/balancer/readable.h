/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tests whether a packet's headers can be read where they are. Include after one of the ctx_*.h headers. */
#pragma once

#include "parse.h"

/* Enough for Ethernet, IP with options or a few extension headers, and the
 * transport header. */
#define HEADERS_MAX 256

/* readable reports whether all headers of a plain packet can be read without pulling more of it into the linear part.
 * Pulling costs more than all the rest, because the packet's sender may still hold it (TCP keeps unacknowledged
 * segments): the kernel then copies it. */
static __always_inline bool readable(const ctx_t *ctx)
{
#if CTX_PULLS
	void *data = ctx_data(ctx), *data_end = ctx_data_end(ctx);
	void *header = data + sizeof(struct ethhdr);
	struct tcphdr *tcp;
	__be16 type;
	__u8 protocol;

	if (header + sizeof(struct iphdr) > data_end)
		return false;
	type = *(__be16 *)(data + offsetof(struct ethhdr, h_proto));
	if (type == bpf_htons(ETH_P_IP) && is_plain4(header, data_end)) {
		protocol = ((struct iphdr *)header)->protocol;
		tcp = header + sizeof(struct iphdr);
	} else if (type == bpf_htons(ETH_P_IPV6) && is_plain6(header, data_end)) {
		protocol = ((struct ipv6hdr *)header)->nexthdr;
		tcp = header + sizeof(struct ipv6hdr);
	} else {
		return false;
	}
	return protocol == IPPROTO_TCP && (void *)(tcp + 1) <= data_end &&
	       (void *)tcp + 4 * tcp->doff <= data_end;
#else
	return true;
#endif
}

/* is_complete reports whether the frame has the complete IP packet, by the length in its header. */
static __always_inline bool is_complete(ctx_t *ctx, const struct packet *packet)
{
	__u64 needed = packet->network + packet->length;

	return ctx_data_end(ctx) - ctx_data(ctx) >= needed || ctx_length(ctx) >= needed;
}

/* sequence_of reads the sequence number of a TCP segment that was parsed, in network byte order; 0 for UDP. It is read
 * where flows begin, and costs other packets nothing. */
static __always_inline __be32 sequence_of(ctx_t *ctx, const struct packet *packet)
{
	__u32 at = (packet->network & 0xff) + (packet->transport & OFFSET_MASK);
	struct tcphdr *tcp = ctx_data(ctx) + at;

	if (packet->protocol != IPPROTO_TCP || (void *)(tcp + 1) > ctx_data_end(ctx))
		return 0;
	return tcp->seq;
}

/* has_ports reports whether a packet has ports. */
static __always_inline bool has_ports(const struct packet *packet)
{
	return !packet->later && !packet->unwalked &&
	       (packet->protocol == IPPROTO_TCP || packet->protocol == IPPROTO_UDP);
}
