/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors (RFC 792) and ICMPv6 errors (RFC 4443) in answer to packets that cannot be forwarded. */
#pragma once

#include "../link.h"
#include "../scratch.h"

/* The maximum length of a quote, with which the answer has 576 bytes (RFC 1812 section 4.3.2.3) or 1280 (RFC 4443
 * section 2.4). */
#define QUOTE4 548
#define QUOTE6 1232
/* The maximum number of bytes that sum_frame() adds up: the header of an ICMP error, and its quote. */
#define MAX_SUMMED (ICMP_HEADER + QUOTE6)
#define SECOND 1000000000ULL

/* Types and codes of ICMP errors (RFC 792, RFC 4443), the length of their headers, and the offset of the checksum;
 * <linux/icmp.h> includes headers that do not compile for eBPF. */
#define ICMP_HEADER 8
#define ICMP_CHECK 2
#define ICMP_DEST_UNREACH 3
#define ICMP_PORT_UNREACH 3
#define ICMP_FRAG_NEEDED 4
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12
#define ICMPV6_DEST_UNREACH 1
#define ICMPV6_PORT_UNREACH 4
#define ICMPV6_PKT_TOOBIG 2
#define ICMPV6_TIME_EXCEED 3
#define ICMPV6_PARAMPROB 4

/* consume_allowance counts an answer; false if the rate limit is exceeded. */
static __always_inline bool consume_allowance(void)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	struct allowance *allowance;
	__u32 zero = 0;

	allowance = bpf_map_lookup_elem(&allowances, &zero);
	if (!allowance || dry_run())
		return allowance;
	if (now - allowance->since >= SECOND) {
		allowance->since = now;
		allowance->used = 0;
	}
	return allowance->used < loaded.too_big_rate && ++allowance->used;
}

/* is_host4 and is_host6 report whether an answer may be sent to an address: RFC 1122 section 3.2.2 and RFC 4443 section
 * 2.4 forbid answers to all but the address of one host. */
static __always_inline bool is_host4(__be32 address)
{
	__u32 first = bpf_ntohl(address) >> 24;

	return address && first != 127 && (first < 224 || first >= 240) && address != 0xffffffff;
}

static __always_inline bool is_host6(const __be32 *address)
{
	if (*(__u8 *)address == 0xff)
		return false;
	return address[0] || address[1] || address[2] || bpf_ntohl(address[3]) > 1;
}

static __always_inline bool may_be_answered(const struct packet *packet)
{
	if (packet->later || packet->protocol == IPPROTO_ICMP ||
	    packet->protocol == IPPROTO_ICMPV6)
		return false;
	return packet->ipv6 ? is_host6(packet->source) : is_host4(packet->source[0]);
}

/* SUMMED_AT_ONCE is how many bytes one step of sum_frame() adds up. */
#define SUMMED_AT_ONCE 64

/* sum_frame adds up the 32-bit words of a frame from an offset on, `length` bytes of them: a checksum that is not
 * folded yet; the length is a multiple of 4. It copies the bytes, because verifiers follow a loop over the frame itself
 * once for each length and each caller; and in constant sizes, because the verifier of Linux 6.1 does not track the
 * bounds of a size that was on the stack. */
__noinline __u64 sum_frame(ctx_t *ctx, __u32 offset, __u32 length)
{
	__be32 words[SUMMED_AT_ONCE / 4];
	__u64 sum = 0;

	for (__u32 i = 0; i < MAX_SUMMED / SUMMED_AT_ONCE; i++) {
		if (length < SUMMED_AT_ONCE || ctx_load(ctx, offset, words, sizeof(words)))
			break;
		sum = (__u32)bpf_csum_diff(NULL, 0, words, sizeof(words), sum);
		offset += SUMMED_AT_ONCE;
		length -= SUMMED_AT_ONCE;
	}
	for (__u32 i = 0; i < SUMMED_AT_ONCE / 4; i++) {
		if (length < 4 || ctx_load(ctx, offset, words, 4))
			break;
		sum += words[0];
		offset += 4;
		length -= 4;
	}
	return sum;
}

/* error is the kind of an ICMP error, and its parameter. */
struct error {
	/* ICMP_ERROR(type, code) of the packet's family. */
	__u32 kind;
	/* The four bytes between the checksum and the quote, in host byte order. */
	__u32 rest;
};

/* ICMP_ERROR is the first word of an ICMP header without its checksum, in host byte order. */
#define ICMP_ERROR(type, code) ((__u32)(type) << 24 | (code) << 16)

/* quoted_check_offset returns the offset of the transport checksum in a quote; 0 if the quote has none. */
static __always_inline __u32 quoted_check_offset(const struct packet *packet, __u32 quote)
{
	__u32 at = packet->transport & OFFSET_MASK;

	if (packet->protocol == IPPROTO_TCP)
		at += offsetof(struct tcphdr, check);
	else if (packet->protocol == IPPROTO_UDP)
		at += offsetof(struct udphdr, check);
	else
		return 0;
	return at + sizeof(__u16) <= quote ? at : 0;
}

/* write_check writes the checksum of an ICMP error at `offset` of the frame; `sum` is that of its pseudo header. A
 * device may still have to complete the quoted transport checksum (CHECKSUM_PARTIAL), whose field has the sum V of the
 * pseudo header: it replaces V by the complement of the sum of all bytes from the transport header on, so that these
 * then add up to the complement of V. The checksum is written for that; ctx_fix_l4 corrects it for a packet whose
 * checksum no device completes, and ignores the correction for one whose checksum a device does. */
static __always_inline bool write_check(ctx_t *ctx, __u16 *check, __u32 offset,
					const struct packet *packet, __u32 quote, __u64 sum)
{
	__u32 at = quoted_check_offset(packet, quote), before = ICMP_HEADER + quote;
	__u64 rest = 0;
	__u16 field = 0;

	if (at) {
		if (ctx_load(ctx, offset + ICMP_HEADER + at, &field, sizeof(field)))
			return false;
		before = ICMP_HEADER + (packet->transport & OFFSET_MASK);
		rest = sum_frame(ctx, offset + before, ICMP_HEADER + quote - before);
		sum += (__u16)~field;
	}
	sum += sum_frame(ctx, offset, before);
	*check = ~checksum_fold(sum);
	return !at || !ctx_fix_l4(ctx, offset + ICMP_CHECK, 0, rest + field, false);
}

/* write_answer4 writes the headers of an answer before its quote. The answer is at `offset` of
 * the frame: `header` is there. */
static __always_inline bool write_answer4(ctx_t *ctx, void *header, __u32 offset,
					  const struct packet *packet, __u32 quote,
					  const struct error *error)
{
	struct iphdr *ip = header;
	__be32 *word = header;
	void *icmp = ip + 1;

	word[0] = bpf_htonl(0x45000000 | (sizeof(*ip) + ICMP_HEADER + quote));
	word[1] = 0;
	word[2] = bpf_htonl(64 << 24 | IPPROTO_ICMP << 16);
	ip->saddr = packet->destination[0];
	ip->daddr = packet->source[0];
	ip->check = ~checksum_fold((__u64)word[0] + word[2] + ip->saddr + ip->daddr);
	word += 5;
	word[0] = bpf_htonl(error->kind);
	word[1] = bpf_htonl(error->rest);
	return write_check(ctx, icmp + ICMP_CHECK, offset + sizeof(*ip), packet, quote, 0);
}

/* write_answer6 is write_answer4 for IPv6, whose checksum covers the addresses too. */
static __always_inline bool write_answer6(ctx_t *ctx, void *header, __u32 offset,
					  const struct packet *packet, __u32 quote,
					  const struct error *error)
{
	struct ipv6hdr *ip = header;
	__be32 *word = header;
	void *icmp = ip + 1;
	__u64 sum;

	word[0] = bpf_htonl(6U << 28);
	word[1] = bpf_htonl((ICMP_HEADER + quote) << 16 | IPPROTO_ICMPV6 << 8 | 64);
	__builtin_memcpy(&ip->saddr, packet->destination, sizeof(ip->saddr));
	__builtin_memcpy(&ip->daddr, packet->source, sizeof(ip->daddr));
	word += 10;
	word[0] = bpf_htonl(error->kind);
	word[1] = bpf_htonl(error->rest);
	sum = sum_frame(ctx, offset + offsetof(struct ipv6hdr, saddr), 32);
	sum += bpf_htonl(ICMP_HEADER + quote) + (__u64)bpf_htonl(IPPROTO_ICMPV6);
	return write_check(ctx, icmp + ICMP_CHECK, offset + sizeof(*ip), packet, quote, sum);
}

/* link_header is the link header of the answer's frame. */
struct link_header {
	__u8 macs[MACS_LENGTH];
	__be32 tag;
};

static __always_inline bool swap_link(ctx_t *ctx, struct link_header *link)
{
	void *frame = ctx_data(ctx);

	if (frame + sizeof(struct ethhdr) + VLAN_LENGTH > ctx_data_end(ctx))
		return false;
	__builtin_memcpy(link->macs, frame + ETH_ALEN, ETH_ALEN);
	__builtin_memcpy(link->macs + ETH_ALEN, frame, ETH_ALEN);
	link->tag = *(__be32 *)(frame + MACS_LENGTH);
	return true;
}

/* cut_to_quote cuts a frame to the front part that is quoted, and returns its length, or 0. */
static __always_inline __u32 cut_to_quote(ctx_t *ctx, const struct packet *packet, __u32 max)
{
	__u32 quote = packet->length < max ? packet->length : max, linear;

	if (ctx_linear(ctx, packet->network + max))
		return 0;
	linear = ctx_data_end(ctx) - ctx_data(ctx);
	if (linear < packet->network + quote)
		quote = linear - packet->network;
	quote &= ~3;
	if (ctx_length(ctx) > packet->network + quote && ctx_cut(ctx, packet->network + quote))
		return 0;
	return quote;
}

/* answer_as is inlined for each family. */
static __always_inline bool answer_as(ctx_t *ctx, const struct packet *packet,
				      const struct error *error, bool ipv6)
{
	const __u32 header = ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	struct link_header link;
	__u32 tag = tag_length(packet), offset = sizeof(struct ethhdr) + tag, quote;
	void *frame, *data_end;

	quote = cut_to_quote(ctx, packet, ipv6 ? QUOTE6 : QUOTE4);
	if (!quote || !swap_link(ctx, &link) || ctx_prepend(ctx, header + ICMP_HEADER))
		return false;
	frame = ctx_data(ctx);
	data_end = ctx_data_end(ctx);
	if (frame + sizeof(struct ethhdr) + VLAN_LENGTH + header + ICMP_HEADER > data_end)
		return false;
	copy_macs(frame, link.macs);
	if (tag)
		*(__be32 *)(frame + MACS_LENGTH) = link.tag;
	frame += tag ? VLAN_LENGTH : 0;
	*(__be16 *)(frame + MACS_LENGTH) = ipv6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	frame += sizeof(struct ethhdr);
	return ipv6 ? write_answer6(ctx, frame, offset, packet, quote, error) :
		      write_answer4(ctx, frame, offset, packet, quote, error);
}

/* answer_icmp turns a packet into an ICMP error to its sender, from the packet's destination address, through the
 * interface that received it. False if the packet must not be answered, the rate limit is exceeded, or there is no
 * room; the packet is then to be dropped. `kind` and `rest`: see struct error. Scratch: reads packet. */
__noinline int answer_icmp(ctx_t *ctx, __u32 kind, __u32 rest)
{
	struct error error = { .kind = kind, .rest = rest };
	struct scratch *scratch = get_scratch();

	if (!scratch || !may_be_answered(&scratch->packet) || !consume_allowance())
		return false;
	return scratch->packet.ipv6 ? answer_as(ctx, &scratch->packet, &error, true) :
				      answer_as(ctx, &scratch->packet, &error, false);
}
