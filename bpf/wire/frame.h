/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames: read, with every checksum verified, and written from the first byte to the last: a recycled frame has its old
 * content. IPv4 without options, TCP, UDP. */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>

#include "number.h"
#include "../lib/checksum.h"

#define WIRE_IP ETH_HLEN
#define WIRE_L4 (ETH_HLEN + 20)
#define WIRE_SHORTEST 60
#define WIRE_HOPS 64
#define WIRE_PLAIN 0x45
#define WIRE_WINDOW 65535
/* Besides those of parse.h. */
#define TCP_PSH 0x08

#define AT(type, data, offset) (*(type *)((data) + (offset)))

/* wire_packet is a parsed packet. */
struct wire_packet {
	/* The sender's MAC address, the first six bytes of the word. */
	__u64 from;
	__be32 source, destination;
	__be16 source_port, destination_port;
	__u32 sequence, acknowledged;
	__u16 window;
	/* Where the payload begins in the frame, and its bytes. */
	__u16 at, payload;
	__u8 flags, protocol, tos;
};

/* wire_read is the result of parsing a frame. */
enum wire_read {
	WIRE_READ,
	/* Not IPv4 with TCP or UDP. */
	WIRE_READ_OTHER,
	WIRE_READ_MALFORMED,
	WIRE_READ_CHECKSUM,
};

/* Words of 8 bytes in the longest payload that is summed or written. */
#define WIRE_WORDS 0xff8

/* wire_sum is the sum of a frame's bytes from `at` on, before folding. It and the other functions that are not static
 * are verified once, by themselves: their loops would multiply with all that follows. For the same reason the bytes
 * that do not fill a word come first. */
__noinline __u64 wire_sum(struct xdp_md *ctx, __u32 at, __u32 length)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 full_words = length & WIRE_WORDS, i;
	__u64 sum = 0;
	void *p;

	if (at > 256)
		return 0;
	data += at;
	p = data + full_words;
	for (i = 0; i < 7 && i < (length & 7) && p + i + 1 <= end; i++)
		sum += (__u64)AT(__u8, p, i) << (i & 1 ? 8 : 0);
	for (i = 0; i < WIRE_CONTENT + 64 && i < full_words && data + i + 8 <= end; i += 8)
		sum += (__u64)AT(__u32, data, i) + AT(__u32, data, i + 4);
	return sum;
}

static __always_inline __u64 wire_pseudo(__be32 source, __be32 destination, __u8 protocol, __u32 length)
{
	return (__u64)source + destination + bpf_htons(protocol) + bpf_htons(length);
}

static __always_inline __u64 wire_ip_sum(void *data)
{
	return (__u64)AT(__u32, data, WIRE_IP) + AT(__u32, data, WIRE_IP + 4) + AT(__u32, data, WIRE_IP + 8) +
	       AT(__u32, data, WIRE_IP + 12) + AT(__u32, data, WIRE_IP + 16);
}

/* wire_parse reads a frame. */
static __always_inline enum wire_read wire_parse(struct xdp_md *ctx, struct wire_packet *seen)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 length, header;
	__u64 sum;

	/* Of a UDP header there may be 8 bytes only; frames have 60, but those of a kernel
	 * on a veth may not: a datagram without payload has 42. */
	if (data + WIRE_L4 + 8 > end)
		return WIRE_READ_OTHER;
	if (AT(__be16, data, 2 * ETH_ALEN) != bpf_htons(ETH_P_IP))
		return WIRE_READ_OTHER;
	seen->protocol = AT(__u8, data, WIRE_IP + 9);
	if (seen->protocol != IPPROTO_TCP && seen->protocol != IPPROTO_UDP)
		return WIRE_READ_OTHER;
	if (AT(__u8, data, WIRE_IP) != WIRE_PLAIN || AT(__be16, data, WIRE_IP + 6) & bpf_htons(IP_FRAGMENT_BITS))
		return WIRE_READ_OTHER;
	seen->from = AT(__u32, data, ETH_ALEN) | (__u64)AT(__u16, data, ETH_ALEN + 4) << 32;
	seen->tos = AT(__u8, data, WIRE_IP + 1);
	seen->source = AT(__be32, data, WIRE_IP + 12);
	seen->destination = AT(__be32, data, WIRE_IP + 16);
	seen->source_port = AT(__be16, data, WIRE_L4);
	seen->destination_port = AT(__be16, data, WIRE_L4 + 2);
	length = bpf_ntohs(AT(__be16, data, WIRE_IP + 2));
	if (length < 28 || length > end - data - WIRE_IP)
		return WIRE_READ_MALFORMED;
	length -= 20;
	header = 8;
	if (seen->protocol == IPPROTO_TCP) {
		if (data + WIRE_L4 + 20 > end)
			return WIRE_READ_MALFORMED;
		header = AT(__u8, data, WIRE_L4 + 12) >> 4 << 2;
		seen->sequence = bpf_ntohl(AT(__be32, data, WIRE_L4 + 4));
		seen->acknowledged = bpf_ntohl(AT(__be32, data, WIRE_L4 + 8));
		seen->flags = AT(__u8, data, WIRE_L4 + 13);
		seen->window = bpf_ntohs(AT(__be16, data, WIRE_L4 + 14));
		if (header < 20 || header > length)
			return WIRE_READ_MALFORMED;
	} else if (bpf_ntohs(AT(__be16, data, WIRE_L4 + 4)) != length) {
		return WIRE_READ_MALFORMED;
	}
	seen->at = WIRE_L4 + header;
	seen->payload = length - header;
	if (checksum_fold(wire_ip_sum(data)) != 0xffff)
		return WIRE_READ_CHECKSUM;
	/* UDP may have none (RFC 768). */
	if (seen->protocol == IPPROTO_UDP && !AT(__u16, data, WIRE_L4 + 6))
		return WIRE_READ;
	sum = wire_pseudo(seen->source, seen->destination, seen->protocol, length);
	if (checksum_fold(sum + wire_sum(ctx, WIRE_L4, length)) != 0xffff)
		return WIRE_READ_CHECKSUM;
	return WIRE_READ;
}

/* wire_payload is the source of a segment's or datagram's payload. */
enum wire_payload {
	/* The request, as it is in wire_control. */
	WIRE_PAYLOAD_REQUEST,
	/* The response from its first byte, or from a later one. */
	WIRE_PAYLOAD_HEAD,
	WIRE_PAYLOAD_FILLER,
	/* The bytes that are in the frame already. */
	WIRE_PAYLOAD_THERE,
	/* The segment's words, then filler. */
	WIRE_PAYLOAD_WORDS,
};

/* Bytes of a segment's words. */
#define WIRE_NUMBERED 24

/* wire_segment is a TCP segment or UDP datagram to be written. */
struct wire_segment {
	/* MAC addresses, the first six bytes of each word. */
	__u64 from, to;
	__be32 source, destination;
	__be16 source_port, destination_port;
	__u32 sequence, acknowledged;
	__u16 window;
	__u16 payload;
	__u8 flags, protocol;
	__u16 content;
	__u64 words[WIRE_NUMBERED / 8];
};

#define WIRE_FILLER 0x7878787878787878ULL

/* wire_content is the word of a payload that begins at an offset. */
static __always_inline __u64 wire_content(const struct wire_control *control, enum wire_payload content, __u32 i)
{
	if (content == WIRE_PAYLOAD_REQUEST && i <= WIRE_CONTENT - 8)
		return AT(__u64, control->content, i);
	if (content == WIRE_PAYLOAD_HEAD && i <= WIRE_HEAD - 8)
		return AT(__u64, control->head, i);
	return WIRE_FILLER;
}

/* wire_write_payload writes one and returns its sum. */
__noinline __u64 wire_write_payload(struct xdp_md *ctx, __u32 at, __u32 length, enum wire_payload content)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct wire_control *control = wire_controlled();
	__u32 full_words = length & WIRE_WORDS, i;
	__u64 word, sum = 0;
	void *p;

	if (!control || at > 256)
		return 0;
	data += at;
	p = data + full_words;
	word = wire_content(control, content, full_words);
	for (i = 0; i < 7 && i < (length & 7) && p + i + 1 <= end; i++) {
		AT(__u8, p, i) = word;
		sum += (__u64)(word & 0xff) << (i & 1 ? 8 : 0);
		word >>= 8;
	}
	for (i = 0; i < WIRE_CONTENT && i < full_words && data + i + 8 <= end; i += 8) {
		word = wire_content(control, content, i);
		AT(__u64, data, i) = word;
		sum += (word >> 32) + (__u32)word;
	}
	return sum;
}

/* wire_resize_frame sets a frame's length; a frame from a kernel, which was on no wire, may stay shorter than
 * Ethernet's minimum. A frame that a kernel made may have no room behind it, but has some before it. */
static __always_inline long wire_resize_frame(struct xdp_md *ctx, __u32 need)
{
	__u32 length = (__u32)(ctx->data_end - ctx->data), target = need > WIRE_SHORTEST ? need : WIRE_SHORTEST;

	if (length >= need && length <= target)
		return 0;
	if (!bpf_xdp_adjust_tail(ctx, (int)target - (int)length))
		return 0;
	return length < target ? bpf_xdp_adjust_head(ctx, (int)length - (int)target) : -1;
}

static __always_inline void wire_write_ip(void *data, const struct wire_segment *s, __u32 length)
{
	AT(__u32, data, 0) = s->to;
	AT(__u16, data, 4) = s->to >> 32;
	AT(__u32, data, 6) = s->from;
	AT(__u16, data, 10) = s->from >> 32;
	AT(__be16, data, 12) = bpf_htons(ETH_P_IP);
	AT(__be16, data, WIRE_IP) = bpf_htons(WIRE_PLAIN << 8);
	AT(__be16, data, WIRE_IP + 2) = bpf_htons(length);
	/* Not to be fragmented: the identification may be 0 (RFC 6864). */
	AT(__be32, data, WIRE_IP + 4) = bpf_htonl(IP_DONT_FRAGMENT);
	AT(__be32, data, WIRE_IP + 8) = bpf_htonl((__u32)WIRE_HOPS << 24 | (__u32)s->protocol << 16);
	AT(__be32, data, WIRE_IP + 12) = s->source;
	AT(__be32, data, WIRE_IP + 16) = s->destination;
	AT(__u16, data, WIRE_IP + 10) = ~checksum_fold(wire_ip_sum(data));
}

/* wire_write_words writes a segment's words and returns their sum. */
static __always_inline __u64 wire_write_words(void *data, const struct wire_segment *s)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < WIRE_NUMBERED / 8; i++) {
		AT(__u64, data, WIRE_L4 + 8 + 8 * i) = s->words[i];
		sum += (s->words[i] >> 32) + (__u32)s->words[i];
	}
	return sum;
}

/* wire_write makes the frame the segment or datagram; negative if there is no room. */
__noinline int wire_write(struct xdp_md *ctx, const struct wire_segment *s)
{
	__u32 header, length;
	void *data, *end;
	__u64 sum;

	if (!s)
		return -1;
	header = s->protocol == IPPROTO_UDP ? 8 : s->flags & TCP_SYN ? 24 : 20;
	length = header + s->payload;
	if (wire_resize_frame(ctx, WIRE_L4 + length))
		return -1;
	sum = wire_pseudo(s->source, s->destination, s->protocol, length);
	if (s->payload && s->content == WIRE_PAYLOAD_THERE)
		sum += wire_sum(ctx, WIRE_L4 + header, s->payload);
	else if (s->content == WIRE_PAYLOAD_WORDS && s->payload > WIRE_NUMBERED)
		sum += wire_write_payload(ctx, WIRE_L4 + header + WIRE_NUMBERED, s->payload - WIRE_NUMBERED,
					  WIRE_PAYLOAD_FILLER);
	else if (s->payload && s->content != WIRE_PAYLOAD_WORDS)
		sum += wire_write_payload(ctx, WIRE_L4 + header, s->payload, s->content);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + WIRE_L4 + 8 > end)
		return -1;
	wire_write_ip(data, s, 20 + length);
	AT(__be16, data, WIRE_L4) = s->source_port;
	AT(__be16, data, WIRE_L4 + 2) = s->destination_port;
	sum += s->source_port + s->destination_port;
	if (s->protocol == IPPROTO_UDP) {
		if (s->content == WIRE_PAYLOAD_WORDS) {
			if (data + WIRE_L4 + 8 + WIRE_NUMBERED > end)
				return -1;
			sum += wire_write_words(data, s);
		}
		AT(__be16, data, WIRE_L4 + 4) = bpf_htons(length);
		header = (__u16)~checksum_fold(sum + bpf_htons(length));
		AT(__u16, data, WIRE_L4 + 6) = header ? header : 0xffff;
		return 0;
	}
	if (data + WIRE_L4 + 20 > end)
		return -1;
	AT(__be32, data, WIRE_L4 + 4) = bpf_htonl(s->sequence);
	AT(__be32, data, WIRE_L4 + 8) = bpf_htonl(s->acknowledged);
	AT(__be16, data, WIRE_L4 + 12) = bpf_htons(header << 10 | s->flags);
	AT(__be16, data, WIRE_L4 + 14) = bpf_htons(s->window);
	AT(__be16, data, WIRE_L4 + 18) = 0;
	sum += (__u64)AT(__u32, data, WIRE_L4 + 4) + AT(__u32, data, WIRE_L4 + 8) + AT(__u32, data, WIRE_L4 + 12);
	if (s->flags & TCP_SYN) {
		if (data + WIRE_L4 + 24 > end)
			return -1;
		/* The maximum segment size, RFC 9293 section 3.2. */
		AT(__be32, data, WIRE_L4 + 20) = bpf_htonl(2 << 24 | 4 << 16 | WIRE_SEGMENT);
		sum += AT(__u32, data, WIRE_L4 + 20);
	}
	AT(__u16, data, WIRE_L4 + 16) = ~checksum_fold(sum);
	return 0;
}
