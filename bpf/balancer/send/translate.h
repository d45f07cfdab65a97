/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Translation of addresses and ports, and of the checksums that cover them. */
#pragma once

#include "../link.h"
#include "../scratch.h"

/* identity_translation writes the translation that changes nothing but the TTL. */
static __always_inline void identity_translation(const struct packet *packet, struct translation *to)
{
	__builtin_memcpy(to->source, packet->source, sizeof(to->source));
	__builtin_memcpy(to->destination, packet->destination, sizeof(to->destination));
	to->source_port = packet->source_port;
	to->destination_port = packet->destination_port;
	to->tos = packet->tos;
	to->ttl_decrement = 1;
	to->exceptions = 0;
	to->verify_backend = 0;
}

static __always_inline __u64 address_changes(const struct packet *packet,
					     const struct translation *to, bool ipv6)
{
	return checksum_change_address(packet->source, to->source, ipv6) +
	       checksum_change_address(packet->destination, to->destination, ipv6);
}

/* write_ip4 and write_ip6 write the changed fields of an IP header. */
static __always_inline void write_ip4(struct iphdr *ip, const struct packet *packet,
				      const struct translation *to, __u64 change)
{
	if (!SAME(packet->tos, to->tos)) {
		change += checksum_change16(bpf_htons(packet->tos), bpf_htons(to->tos));
		ip->tos = to->tos;
	}
	if (!SAME(packet->source[0], to->source[0]))
		ip->saddr = to->source[0];
	if (!SAME(packet->destination[0], to->destination[0]))
		ip->daddr = to->destination[0];
	if (to->ttl_decrement) {
		ip->ttl--;
		change += TTL_CHANGE;
	}
	ip->check = checksum_fix(ip->check, change);
}

static __always_inline void write_ip6(struct ipv6hdr *ip, const struct translation *to)
{
	__be16 *first = (__be16 *)ip;

	*first = (*first & bpf_htons(0xf00f)) | bpf_htons(to->tos << 4);
	__builtin_memcpy(&ip->saddr, to->source, sizeof(ip->saddr));
	__builtin_memcpy(&ip->daddr, to->destination, sizeof(ip->daddr));
	ip->hop_limit -= to->ttl_decrement;
}

/* check_offset returns the offset of the checksum in a transport header; 0 for protocols without a checksum over the
 * pseudo header. */
static __always_inline __u32 check_offset(__u8 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		return offsetof(struct tcphdr, check);
	case IPPROTO_UDP:
		return offsetof(struct udphdr, check);
	case IPPROTO_ICMPV6:
		return 2;
	}
	return 0;
}

/* translate_as is inlined for each family. */
static __always_inline enum outcome translate_as(ctx_t *ctx, const struct packet *packet,
						 const struct translation *to, bool ipv6)
{
	const __u32 header = ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	__u64 pseudo = address_changes(packet, to, ipv6), plain = 0;
	__u32 network = packet->network & 0xff, check = 0;
	__u32 transport = network + (packet->transport & OFFSET_MASK);
	void *data = ctx_data(ctx), *data_end = ctx_data_end(ctx);
	__be16 *port = data + transport;

	if (data + network + header > data_end)
		return OUTCOME_DROPPED_MALFORMED;
	if (ipv6)
		write_ip6(data + network, to);
	else
		write_ip4(data + network, packet, to, pseudo);
	if (packet->later)
		return OUTCOME_NONE;
	check = check_offset(packet->protocol);
	if (packet->protocol == IPPROTO_TCP || packet->protocol == IPPROTO_UDP) {
		if ((void *)(port + 2) > data_end)
			return OUTCOME_DROPPED_MALFORMED;
		port[0] = to->source_port;
		port[1] = to->destination_port;
		if (packet->source_port != to->source_port ||
		    packet->destination_port != to->destination_port)
			plain = checksum_change16(packet->source_port, to->source_port) +
				checksum_change16(packet->destination_port, to->destination_port);
	} else if (!ipv6) {
		return OUTCOME_NONE;
	}
	if (check && ctx_fix_l4(ctx, transport + check, pseudo, plain,
				packet->protocol == IPPROTO_UDP))
		return OUTCOME_DROPPED_MALFORMED;
	return OUTCOME_NONE;
}

/* translate_inline writes the new addresses and ports of a packet; OUTCOME_NONE unless it cannot. */
static __always_inline enum outcome translate_inline(ctx_t *ctx, const struct packet *packet,
						     const struct translation *to)
{
	return packet->ipv6 ? translate_as(ctx, packet, to, true) :
			      translate_as(ctx, packet, to, false);
}

/* translate is translate_inline() where the cost of a call does not matter. A call costs about 7 ns on processors whose
 * returns must not be predicted. */
__noinline int translate(ctx_t *ctx, const struct packet *packet, const struct translation *to)
{
	if (!packet || !to)
		return OUTCOME_DROPPED_MALFORMED;
	return translate_inline(ctx, packet, to);
}
