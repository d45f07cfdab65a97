/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A TCP reset in answer to a packet of no connection, as a host sends it (RFC 9293 section 3.10.7.1). It is never
 * longer than the packet that it answers: senders with spoofed addresses get no amplification. */
#pragma once

#include "../link.h"
#include "../scratch.h"
#include "icmperror.h"

/* A TCP header without options: 5 words in the upper four bits of its 13th byte. */
#define TCP_PLAIN (5U << 28)
#define RESET_FLAG (TCP_RST << 16)
#define ACK_FLAG (TCP_ACK << 16)

/* reset_numbers has the sequence numbers and flags that a reset must have: its receiver discards any other. Network
 * byte order. */
struct reset_numbers {
	__be32 sequence;
	__be32 acknowledged;
	/* The fourth word of the TCP header, without the window: length and flags. */
	__be32 flags;
};

/* number_reset derives the numbers of the reset from the segment: the sequence number is the segment's acknowledgement
 * number; without one, the reset acknowledges the segment, with SYN and FIN counting one each. */
static __always_inline bool number_reset(ctx_t *ctx, const struct packet *packet,
					 struct reset_numbers *numbers)
{
	__u32 transport = packet->transport & OFFSET_MASK, headers;
	struct tcphdr *tcp = ctx_data(ctx) + (packet->network & 0xff) + transport;
	__u32 next;

	if ((void *)(tcp + 1) > ctx_data_end(ctx))
		return false;
	if (packet->tcp_flags & TCP_ACK) {
		numbers->sequence = tcp->ack_seq;
		numbers->acknowledged = 0;
		numbers->flags = bpf_htonl(TCP_PLAIN | RESET_FLAG);
		return true;
	}
	headers = transport + tcp->doff * 4;
	next = bpf_ntohl(tcp->seq) + !!(packet->tcp_flags & TCP_SYN) +
	       !!(packet->tcp_flags & TCP_FIN);
	if (packet->length > headers)
		next += packet->length - headers;
	numbers->sequence = 0;
	numbers->acknowledged = bpf_htonl(next);
	numbers->flags = bpf_htonl(TCP_PLAIN | RESET_FLAG | ACK_FLAG);
	return true;
}

/* trim_to_tcp cuts the frame to the length of its answer: without options or extension headers of IP before the TCP
 * header, and without payload after it. The TCP header keeps its offset, because a device may still have to write a
 * checksum there. */
static __always_inline long trim_to_tcp(ctx_t *ctx, const struct packet *packet, __u32 header)
{
	__u32 end = (packet->network & 0xff) + header + sizeof(struct tcphdr);
	__u32 surplus = (packet->transport & OFFSET_MASK) - header;

	if (surplus && ctx_prepend(ctx, -surplus))
		return -1;
	return ctx_length(ctx) > end ? ctx_cut(ctx, end) : 0;
}

/* write_reset4 and write_reset6 write the IP header, and return the sum of the pseudo header. */
static __always_inline __u64 write_reset4(struct iphdr *ip, const struct packet *packet)
{
	__be32 *word = (__be32 *)ip;

	word[0] = bpf_htonl(0x45000000 | (sizeof(*ip) + sizeof(struct tcphdr)));
	word[1] = bpf_htonl(IP_DONT_FRAGMENT);
	word[2] = bpf_htonl(64 << 24 | IPPROTO_TCP << 16);
	ip->saddr = packet->destination[0];
	ip->daddr = packet->source[0];
	ip->check = ~checksum_fold((__u64)word[0] + word[1] + word[2] + ip->saddr + ip->daddr);
	return (__u64)ip->saddr + ip->daddr;
}

static __always_inline __u64 write_reset6(struct ipv6hdr *ip, const struct packet *packet)
{
	__be32 *word = (__be32 *)ip;
	__u64 sum = 0;

	word[0] = bpf_htonl(6U << 28);
	word[1] = bpf_htonl(sizeof(struct tcphdr) << 16 | IPPROTO_TCP << 8 | 64);
#pragma unroll
	for (int i = 0; i < 4; i++) {
		word[2 + i] = packet->destination[i];
		word[6 + i] = packet->source[i];
		sum += (__u64)packet->destination[i] + packet->source[i];
	}
	return sum;
}

/* write_tcp writes the TCP header, with the pseudo header's sum as its checksum, as it is until a device completes it
 * (CHECKSUM_PARTIAL). It returns the correction for a packet whose checksum no device completes; ctx_fix_l4 ignores it
 * for one whose checksum a device does. */
static __always_inline __u64 write_tcp(void *header, const struct packet *packet,
				       const struct reset_numbers *numbers, __u64 pseudo)
{
	struct tcphdr *tcp = header;
	__be32 *word = header;

	pseudo += bpf_htonl(IPPROTO_TCP) + (__u64)bpf_htonl(sizeof(*tcp));
	tcp->source = packet->destination_port;
	tcp->dest = packet->source_port;
	word[1] = numbers->sequence;
	word[2] = numbers->acknowledged;
	word[3] = numbers->flags;
	word[4] = 0;
	tcp->check = checksum_fold(pseudo);
	return 2 * pseudo + word[0] + word[1] + word[2] + word[3];
}

/* reset_as is inlined for each family. Resets do not use the allowance of ICMP errors: refused connections must not use
 * up the answers to packets that are too big. */
static __always_inline bool reset_as(ctx_t *ctx, const struct packet *packet, bool ipv6)
{
	const __u32 header = ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	__u32 tag = tag_length(packet);
	struct link_header link;
	void *frame, *transport;
	struct reset_numbers numbers;
	__u64 sum;

	if (!number_reset(ctx, packet, &numbers) || !swap_link(ctx, &link) ||
	    trim_to_tcp(ctx, packet, header))
		return false;
	frame = ctx_data(ctx);
	if (frame + sizeof(struct ethhdr) + VLAN_LENGTH > ctx_data_end(ctx))
		return false;
	copy_macs(frame, link.macs);
	if (tag)
		*(__be32 *)(frame + MACS_LENGTH) = link.tag;
	frame += tag ? VLAN_LENGTH : 0;
	transport = frame + sizeof(struct ethhdr) + header;
	if (transport + sizeof(struct tcphdr) > ctx_data_end(ctx))
		return false;
	*(__be16 *)(frame + MACS_LENGTH) = ipv6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	sum = ipv6 ? write_reset6(frame + sizeof(struct ethhdr), packet) :
		     write_reset4(frame + sizeof(struct ethhdr), packet);
	sum = write_tcp(transport, packet, &numbers, sum);
	return !ctx_fix_l4(ctx, packet->network + header + offsetof(struct tcphdr, check), 0, sum,
			   false);
}

/* answer_reset turns a packet into a reset to its sender, from the packet's destination address, through the interface
 * that received it; false if that cannot be done. A reset is not answered. Scratch: reads packet. */
__noinline int answer_reset(ctx_t *ctx)
{
	struct scratch *scratch = get_scratch();

	if (!scratch || !may_be_answered(&scratch->packet) || (scratch->packet.tcp_flags & TCP_RST))
		return false;
	return scratch->packet.ipv6 ? reset_as(ctx, &scratch->packet, true) :
				      reset_as(ctx, &scratch->packet, false);
}
