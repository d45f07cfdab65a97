/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Parses a frame into struct packet. The parsers take pointers, not a context, and work the same in every hook. */
#pragma once

#include "types.h"
#include "../lib/headers.h"

/* Extension headers before the transport header that are parsed. Real packets have none or one; the bound limits the
 * cost of a chain. */
#define IPV6_MAX_EXTENSIONS 4
/* Mask that bounds offsets in a parsed frame for the verifier: four extension headers are at most 8192 bytes. */
#define OFFSET_MASK 0x3fff

/* packet is a parsed frame. Addresses and ports are in network byte order. */
struct packet {
	/* IPv6, or an IPv4 address in the first word. */
	__be32 source[4];
	__be32 destination[4];
	__be16 source_port;
	__be16 destination_port;
	/* Length of the IP packet, in bytes. */
	__u32 length;
	/* The identification of a fragment, as in the packet; 16 bits in IPv4. */
	__be32 identification;
	/* Where the IP header begins in the frame, and the transport header in the
	 * IP packet. */
	__u16 network;
	__u16 transport;
	bool ipv6;
	bool fragment;
	/* It is a fragment other than the first, which has no ports. */
	bool later;
	/* There are more than IPV6_MAX_EXTENSIONS extension headers. */
	bool unwalked;
	/* DF: an IPv4 packet that no router may fragment. */
	bool dont_fragment;
	__u8 protocol;
	__u8 tcp_flags;
	/* TOS or traffic class. */
	__u8 tos;
};

/* opens_connection reports whether a packet is a SYN: TCP's first of a connection. */
static __always_inline bool opens_connection(const struct packet *packet)
{
	return (packet->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/* same_address compares addresses of a family. */
static __always_inline bool same_address(const __be32 *a, const __be32 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

/* network_at returns the offset of the IP header in a frame with `tags` bytes of VLAN tags. */
static __always_inline __u16 network_at(__u32 tags)
{
	return sizeof(struct ethhdr) + tags;
}

/* mac_equal compares in two loads. The kernel's struct is packed, and through
 * it the compiler would load each byte by itself. */
static __always_inline bool mac_equal(const void *a, const volatile void *b)
{
	return *(const __u32 *)a == *(const volatile __u32 *)b &&
	       *(const __u16 *)(a + 4) == *(const volatile __u16 *)(b + 4);
}

/* part is the input of the parser: a received packet, or the packet that an ICMP error quotes. */
enum part {
	PART_ALL,
	/* The quote of an ICMP error: its transport header may be cut short, and is not read. */
	PART_QUOTED,
};

/* parse_transport reads ports and, of TCP, flags. Protocols without ports leave them 0: no service has port 0. `offset`
 * is where the header begins in the IP packet: bytes beyond the packet's own length are padding, and must not be taken
 * for a header. */
static __always_inline enum outcome parse_transport(struct packet *packet, void *header,
						    __u32 offset, void *data_end, enum part part)
{
	packet->transport = offset;
	if (part == PART_QUOTED)
		return OUTCOME_NONE;
	if (packet->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = header;

		if ((void *)(tcp + 1) > data_end || tcp->doff < 5 ||
		    packet->length < offset + sizeof(*tcp))
			return OUTCOME_DROPPED_MALFORMED;
		packet->source_port = tcp->source;
		packet->destination_port = tcp->dest;
		packet->tcp_flags = ((__u8 *)tcp)[13];
	} else if (packet->protocol == IPPROTO_UDP) {
		struct udphdr *udp = header;

		if ((void *)(udp + 1) > data_end || packet->length < offset + sizeof(*udp))
			return OUTCOME_DROPPED_MALFORMED;
		packet->source_port = udp->source;
		packet->destination_port = udp->dest;
	}
	return OUTCOME_NONE;
}

static __always_inline void parse_ipv4_fields(struct packet *packet, const struct iphdr *ip)
{
	packet->source[0] = ip->saddr;
	packet->destination[0] = ip->daddr;
	packet->protocol = ip->protocol;
	packet->tos = ip->tos;
	packet->dont_fragment = ip->frag_off & bpf_htons(IP_DONT_FRAGMENT);
	packet->fragment = ip->frag_off & bpf_htons(IP_FRAGMENT_BITS);
	packet->later = ip->frag_off & bpf_htons(IP_OFFSET_BITS);
	packet->identification = ip->id;
}

/* is_plain4 and is_plain6 match packets whose offsets are all constants, which nearly all packets are: without options,
 * and without extension headers before TCP or UDP. */
static __always_inline bool is_plain4(const void *header, const void *data_end)
{
	return header + sizeof(struct iphdr) <= data_end && *(const __u8 *)header == IPV4_PLAIN;
}

static __always_inline bool is_plain6(const void *header, const void *data_end)
{
	const struct ipv6hdr *ip = header;

	return (const void *)(ip + 1) <= data_end && ip->version == 6 &&
	       (ip->nexthdr == IPPROTO_TCP || ip->nexthdr == IPPROTO_UDP);
}

static __always_inline enum outcome parse_plain4(struct packet *packet, void *header,
						 void *data_end)
{
	struct iphdr *ip = header;

	packet->ipv6 = false;
	if ((void *)(ip + 1) > data_end)
		return OUTCOME_DROPPED_MALFORMED;
	packet->length = bpf_ntohs(ip->tot_len);
	if (packet->length < sizeof(*ip))
		return OUTCOME_DROPPED_MALFORMED;
	parse_ipv4_fields(packet, ip);
	if (packet->later)
		return OUTCOME_NONE;
	return parse_transport(packet, ip + 1, sizeof(*ip), data_end, PART_ALL);
}

/* `buffered` is the length of the IP packet in its buffer if that is a GSO packet, and 0 if not: a GSO packet that is
 * too long for the header's field has 0 there (BIG TCP). */
static __always_inline enum outcome parse_ipv4(struct packet *packet, void *header, void *data_end,
					       __u32 buffered, enum part part)
{
	struct iphdr *ip = header;

	packet->ipv6 = false;
	if ((void *)(ip + 1) > data_end || ip->version != 4 || ip->ihl < 5)
		return OUTCOME_DROPPED_MALFORMED;
	packet->length = ip->tot_len ? bpf_ntohs(ip->tot_len) : buffered;
	if (packet->length < ip->ihl * 4 || header + ip->ihl * 4 > data_end)
		return OUTCOME_DROPPED_MALFORMED;
	parse_ipv4_fields(packet, ip);
	if (packet->later)
		return OUTCOME_NONE;
	return parse_transport(packet, header + ip->ihl * 4, ip->ihl * 4, data_end, part);
}

/* parse_ipv6_fragment reads the fragment header. */
static __always_inline void parse_ipv6_fragment(struct packet *packet, const __u8 *header)
{
	__be16 offset = *(__be16 *)(header + 2);

	/* An atomic fragment (RFC 6946) is a complete packet. */
	if (!(offset & bpf_htons(IPV6_FRAGMENT_BITS)))
		return;
	packet->fragment = true;
	packet->later = offset & bpf_htons(IPV6_OFFSET_BITS);
	packet->identification = *(__be32 *)(header + 4);
}

static __always_inline void parse_ipv6_fields(struct packet *packet, const struct ipv6hdr *ip)
{
	packet->ipv6 = true;
	packet->length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	packet->tos = bpf_ntohs(*(__be16 *)ip) >> 4;
	__builtin_memcpy(packet->source, &ip->saddr, sizeof(packet->source));
	__builtin_memcpy(packet->destination, &ip->daddr, sizeof(packet->destination));
	packet->protocol = ip->nexthdr;
}

static __always_inline enum outcome parse_plain6(struct packet *packet, void *header,
						 void *data_end)
{
	struct ipv6hdr *ip = header;

	if ((void *)(ip + 1) > data_end)
		return OUTCOME_DROPPED_MALFORMED;
	parse_ipv6_fields(packet, ip);
	return parse_transport(packet, ip + 1, sizeof(*ip), data_end, PART_ALL);
}

/* parse_ipv6 walks the extension headers that may precede the transport header, RFC 8200 section 4.1. `buffered` is as
 * in parse_ipv4(); in IPv6 the kernel may insert a hop-by-hop header as well. */
static __always_inline enum outcome parse_ipv6(struct packet *packet, void *header, void *data_end,
					       __u32 buffered, enum part part)
{
	struct ipv6hdr *ip = header;
	__u32 offset = sizeof(*ip), length;

	packet->ipv6 = true;
	if ((void *)(ip + 1) > data_end || ip->version != 6)
		return OUTCOME_DROPPED_MALFORMED;
	parse_ipv6_fields(packet, ip);
	if (!ip->payload_len && buffered)
		packet->length = buffered;
	header = ip + 1;
#pragma unroll
	for (int i = 0; i <= IPV6_MAX_EXTENSIONS; i++) {
		__u8 *extension = header;

		switch (packet->protocol) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
		case IPPROTO_FRAGMENT:
			break;
		default:
			return parse_transport(packet, header, offset, data_end, part);
		}
		if (i == IPV6_MAX_EXTENSIONS)
			break;
		if ((void *)(extension + 8) > data_end)
			return OUTCOME_DROPPED_MALFORMED;
		length = (extension[1] + 1) * 8;
		if (packet->protocol == IPPROTO_FRAGMENT) {
			length = 8;
			parse_ipv6_fragment(packet, extension);
		}
		packet->protocol = extension[0];
		if (packet->later)
			return OUTCOME_NONE;
		header += length;
		offset += length;
	}
	packet->unwalked = true;
	return OUTCOME_NONE;
}

/* parse_ethernet reads the Ethernet header: OUTCOME_NONE and the EtherType of a frame that is for us. A VLAN tag in the
 * frame is skipped, and its length is left in *tag. */
static __always_inline enum outcome parse_ethernet(void *data, void *data_end,
						   const volatile void *own_mac, bool tags,
						   __be16 *type, __u32 *tag)
{
	struct ethhdr *eth = data;

	*tag = 0;
	if ((void *)(eth + 1) > data_end)
		return OUTCOME_DROPPED_MALFORMED;
	if (!mac_equal(data, own_mac))
		return OUTCOME_PASSED_OTHER_HOST;
	*type = *(__be16 *)(data + offsetof(struct ethhdr, h_proto));
	if (tags && (*type == bpf_htons(ETH_P_8021Q) || *type == bpf_htons(ETH_P_8021AD))) {
		if ((void *)(eth + 1) + VLAN_LENGTH > data_end)
			return OUTCOME_DROPPED_MALFORMED;
		*type = *(__be16 *)(data + offsetof(struct ethhdr, h_proto) + VLAN_LENGTH);
		*tag = VLAN_LENGTH;
	}
	return *type == bpf_htons(ETH_P_IPV6) || *type == bpf_htons(ETH_P_IP) ?
		       OUTCOME_NONE : OUTCOME_PASSED_NOT_IP;
}
