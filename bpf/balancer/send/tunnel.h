/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets within packets: IP in IP (RFC 2003, RFC 2473, RFC 4213), and in UDP by
 * variant 1 of GUE (draft-ietf-intarea-gue section 4). */
#pragma once

#include "../hash.h"
#include "../link.h"

#define GUE_PORT 6080
/* The first source port of GUE datagrams, which are dynamic ports (RFC 6335 section 6). */
#define GUE_FIRST_SOURCE 0xc000
#define GUE_SOURCE_MASK 0x3fff
#define TUNNEL_TTL 64

/* tunnel_overhead returns the number of bytes that a tunnel to a backend adds to a packet. */
static __always_inline __u32 tunnel_overhead(enum mode mode, const struct backend *backend)
{
	__u32 ip = backend->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	return mode == MODE_GUE ? ip + sizeof(struct udphdr) : ip;
}

/* write_outer4 writes an IPv4 header in words: their sum is its checksum. */
static __always_inline void write_outer4(void *header, const struct packet *packet,
					 const struct backend *backend, __u8 protocol,
					 __u32 length)
{
	__be32 *word = header;
	__u64 sum;

	word[0] = bpf_htonl(0x45000000 | packet->tos << 16 | length);
	word[1] = bpf_htonl(IP_DONT_FRAGMENT);
	word[2] = bpf_htonl(TUNNEL_TTL << 24 | protocol << 16);
	word[3] = backend->local[0];
	word[4] = backend->address[0];
	sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];
	((struct iphdr *)header)->check = ~checksum_fold(sum);
}

/* write_outer6 labels the flow, so that routers may balance (RFC 6438). */
static __always_inline void write_outer6(void *header, const struct packet *packet,
					 const struct backend *backend, __u8 protocol,
					 __u32 length, __u32 hash)
{
	__be32 *word = header;

	word[0] = bpf_htonl(6U << 28 | packet->tos << 20 | (hash & 0xfffff));
	word[1] = bpf_htonl(length << 16 | protocol << 8 | TUNNEL_TTL);
	__builtin_memcpy(word + 2, backend->local, sizeof(backend->local));
	__builtin_memcpy(word + 6, backend->address, sizeof(backend->address));
}

/* write_udp leaves the checksum 0: the inner packet has its own, and RFC 6935 allows it for tunnels over IPv6 too. */
static __always_inline void write_udp(void *header, __u32 hash, __u32 length)
{
	__be32 *word = header;

	word[0] = bpf_htonl((GUE_FIRST_SOURCE | (hash & GUE_SOURCE_MASK)) << 16 | GUE_PORT);
	word[1] = bpf_htonl(length << 16);
}

/* write_link writes the complete link header: the added room may be in its place. */
static __always_inline void write_link(void *frame, const struct backend *backend, __u32 tag,
				       __be32 tag_word)
{
	__be16 type = backend->ipv6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);

	copy_macs(frame, backend);
	if (tag) {
		*(__be32 *)(frame + MACS_LENGTH) = tag_word;
		*(__be16 *)(frame + MACS_LENGTH + VLAN_LENGTH) = type;
	} else {
		*(__be16 *)(frame + MACS_LENGTH) = type;
	}
}

/* length_field returns the value of a header's 16-bit field for a length: 0 for a GSO packet that is too long for it
 * (BIG TCP), of which the kernel writes the lengths of the segments. */
static __always_inline __u32 length_field(__u32 length)
{
	return length > 0xffff ? 0 : length;
}

/* encapsulate_as is inlined for each outer family and kind of tunnel: then all
 * offsets are constants. */
static __always_inline enum outcome encapsulate_as(ctx_t *ctx, const struct packet *packet,
						   const struct backend *backend, bool ipv6,
						   bool udp, __u32 hash)
{
	const __u32 ip = ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	const __u32 room = udp ? ip + sizeof(struct udphdr) : ip;
	__u8 protocol = packet->ipv6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	__u32 tag = tag_length(packet), payload = packet->length + room - ip;
	__be32 tag_word = 0;
	void *frame, *header;

	if (tag) {
		frame = ctx_data(ctx);
		if (frame + sizeof(struct ethhdr) + VLAN_LENGTH > ctx_data_end(ctx))
			return OUTCOME_DROPPED_MALFORMED;
		tag_word = *(__be32 *)(frame + MACS_LENGTH);
	}
	if (is_other_interface(backend->interface)) {
		if (ctx_untag(ctx, tag))
			return OUTCOME_DROPPED_NO_ROOM;
		tag = 0;
	}
	if (ctx_grow(ctx, room, ipv6, udp, packet->protocol == IPPROTO_UDP))
		return OUTCOME_DROPPED_NO_ROOM;
	frame = ctx_data(ctx);
	if (frame + sizeof(struct ethhdr) + VLAN_LENGTH + room > ctx_data_end(ctx))
		return OUTCOME_DROPPED_NO_ROOM;
	write_link(frame, backend, tag, tag_word);
	header = frame + sizeof(struct ethhdr) + (tag ? VLAN_LENGTH : 0);
	if (udp)
		protocol = IPPROTO_UDP;
	if (ipv6)
		write_outer6(header, packet, backend, protocol, length_field(payload), hash);
	else
		write_outer4(header, packet, backend, protocol, length_field(payload + ip));
	if (udp)
		write_udp(header + ip, hash, length_field(payload));
	return OUTCOME_FORWARDED;
}

static __always_inline enum outcome encapsulate(ctx_t *ctx, const struct packet *packet,
						const struct backend *backend, __u32 mode,
						__u32 hash)
{
	if (has_mode(MODE_GUE) && mode == MODE_GUE)
		return backend->ipv6 ? encapsulate_as(ctx, packet, backend, true, true, hash) :
				       encapsulate_as(ctx, packet, backend, false, true, hash);
	return backend->ipv6 ? encapsulate_as(ctx, packet, backend, true, false, hash) :
			       encapsulate_as(ctx, packet, backend, false, false, hash);
}
