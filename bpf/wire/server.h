/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A server port. It keeps no state: a client's acknowledgement number identifies the server port that has accepted the
 * connection, and how much of the response was received. Responses go out one segment at a time, each when the one
 * before is acknowledged. */
#pragma once

#include "frame.h"

/* wire_server_ctx is the context of a packet at a server port. */
struct wire_server_ctx {
	const struct wire_control *control;
	struct wire_counts *counts;
	struct wire_packet *seen;
	/* The source address and port of answers. */
	__be32 own;
	__be16 own_port;
};

/* wire_reply_mac is the MAC address that answers are sent to. */
static __always_inline __u64 wire_reply_mac(const struct wire_server_ctx *c)
{
	__u32 client;

	if (!settings.direct)
		return c->seen->from;
	client = wire_client_of(c->seen->source);
	return client < settings.clients ? settings.client[client & (WIRE_PORTS - 1)].mac : c->seen->from;
}

static __always_inline int wire_answer(struct xdp_md *ctx, const struct wire_server_ctx *c, __u8 flags, __u32 sequence,
				       __u32 acknowledged, __u16 window, __u16 payload, __u16 content)
{
	struct wire_segment s = {
		.from = port.mac,
		.to = wire_reply_mac(c),
		.source = c->own,
		.destination = c->seen->source,
		.source_port = c->own_port,
		.destination_port = c->seen->source_port,
		.sequence = sequence,
		.acknowledged = acknowledged,
		.window = window,
		.payload = payload,
		.flags = flags,
		.protocol = c->seen->protocol,
		.content = content,
	};

	if (wire_write(ctx, &s))
		return XDP_ABORTED;
	wire_count(c->counts, WIRE_COUNT_SENT);
	return XDP_TX;
}

/* wire_own_client is the connection of a client of ours, from memory that its port and this one share; NULL for an
 * unknown peer. It is read for counting only. */
static __always_inline struct wire_connection *wire_own_client(const struct wire_packet *seen)
{
	__u32 client = wire_client_of(seen->source), slot;

	if (client >= settings.clients)
		return NULL;
	slot = wire_slot(client, seen->source, seen->source_port);
	return slot < settings.capacity ? wire_connection(slot) : NULL;
}

/* wire_first_of_unknown is wire_first_time for a sender that is no client of ours. Where two of them collide, one may
 * count as new again. */
static __always_inline bool wire_first_of_unknown(const struct wire_packet *seen, __u32 number)
{
	__u64 hash = wire_mix((__u64)seen->source << 16 | seen->source_port), record = hash << 32 | number;
	__u32 place = hash >> 32 & (WIRE_UNKNOWN_PEERS - 1);
	__u64 *last = bpf_map_lookup_elem(&wire_unknown_peers, &place);

	if (!last || *last == record)
		return false;
	*last = record;
	return true;
}

/* wire_first_time reports whether an event of a connection, identified by a number, is seen for the first time. */
static __always_inline bool wire_first_time(const struct wire_packet *seen, __u32 number)
{
	struct wire_connection *known = wire_own_client(seen);

	if (!known)
		return wire_first_of_unknown(seen, number);
	if (known->accepted == number)
		return false;
	known->accepted = number;
	return true;
}

/* Bytes that fit before a frame that a kernel made, where none fit behind it. */
#define WIRE_ROOM 160

/* wire_respond_bytes sends `length` bytes of the response. With the last of them the connection is closed, as HTTP/1.0
 * has it; but clients of ours close it themselves. */
static __always_inline int wire_respond_bytes(struct xdp_md *ctx, const struct wire_server_ctx *c, __u32 offset,
					      __u32 received, __u32 length)
{
	__u8 flags = length ? TCP_ACK | TCP_PSH : TCP_ACK;

	if (offset + length == c->control->response && !c->control->keep && !wire_own_client(c->seen))
		flags |= TCP_FIN;
	return wire_answer(ctx, c, flags, c->seen->acknowledged, received, WIRE_WINDOW, length,
			   offset ? WIRE_PAYLOAD_FILLER : WIRE_PAYLOAD_HEAD);
}

/* wire_respond sends the segment of the response that begins at an offset. */
static __always_inline int wire_respond(struct xdp_md *ctx, const struct wire_server_ctx *c, __u32 offset,
					__u32 received)
{
	__u32 length = c->control->response - offset;
	int verdict;

	if (length > WIRE_SEGMENT)
		length = WIRE_SEGMENT;
	if (length > c->seen->window)
		length = c->seen->window;
	verdict = wire_respond_bytes(ctx, c, offset, received, length);
	if (verdict != XDP_ABORTED || length <= WIRE_ROOM)
		return verdict;
	return wire_respond_bytes(ctx, c, offset, received, WIRE_ROOM);
}

/* wire_server_open answers a segment of a connection that this port has accepted, of
 * whose response `offset` bytes have come. */
static __always_inline int wire_server_open(struct xdp_md *ctx, const struct wire_server_ctx *c, __u32 offset)
{
	const struct wire_packet *seen = c->seen;
	__u32 received = seen->sequence + seen->payload, response = c->control->response;

	/* Its first ACK may have been lost: a request or a FIN accepts as well. */
	if (!offset) {
		if (wire_first_time(seen, seen->sequence))
			wire_count(c->counts, WIRE_COUNT_ESTABLISHED);
		else if (!seen->payload && !(seen->flags & TCP_FIN))
			wire_count(c->counts, WIRE_COUNT_DUPLICATE);
	}
	if (seen->flags & TCP_FIN) {
		wire_count(c->counts, WIRE_COUNT_FIN);
		/* Ours has come already: this is the last that is owed. */
		if (offset > response)
			return wire_answer(ctx, c, TCP_ACK, seen->acknowledged, received + 1, WIRE_WINDOW, 0, 0);
		return wire_answer(ctx, c, TCP_FIN | TCP_ACK, seen->acknowledged, received + 1, WIRE_WINDOW, 0, 0);
	}
	if (seen->payload) {
		wire_count(c->counts, WIRE_COUNT_REQUEST);
		/* Without a response the request is answered by the end. */
		if (!response)
			return wire_answer(ctx, c, TCP_FIN | TCP_ACK, seen->acknowledged, received, WIRE_WINDOW, 0, 0);
		if (offset <= response)
			return wire_respond(ctx, c, offset, received);
		return XDP_DROP;
	}
	if (offset && offset < response && seen->window)
		return wire_respond(ctx, c, offset, received);
	return XDP_DROP;
}

/* wire_server_tcp handles a segment for the VIP or for this port's own address. */
static __always_inline int wire_server_tcp(struct xdp_md *ctx, const struct wire_server_ctx *c)
{
	const struct wire_packet *seen = c->seen;
	__u32 cookie = wire_cookie(seen->source, seen->source_port), ahead;

	if (seen->flags & TCP_RST) {
		wire_count(c->counts, WIRE_COUNT_RST);
		return XDP_DROP;
	}
	if (seen->flags & TCP_SYN) {
		wire_count(c->counts, WIRE_COUNT_SYN);
		return wire_answer(ctx, c, TCP_SYN | TCP_ACK, cookie + (port.index << WIRE_OFFSET_BITS), seen->sequence + 1,
				   WIRE_WINDOW, 0, 0);
	}
	if (!(seen->flags & TCP_ACK)) {
		wire_count(c->counts, WIRE_COUNT_MALFORMED);
		return XDP_DROP;
	}
	ahead = seen->acknowledged - 1 - cookie;
	if (ahead >> WIRE_OFFSET_BITS == port.index && (ahead & WIRE_OFFSET_MASK) <= c->control->response + 1)
		return wire_server_open(ctx, c, ahead & WIRE_OFFSET_MASK);
	if (ahead >> WIRE_OFFSET_BITS < settings.servers && (ahead & WIRE_OFFSET_MASK) <= c->control->response + 1) {
		wire_count(c->counts, WIRE_COUNT_WRONG_BACKEND);
		return wire_answer(ctx, c, TCP_RST, seen->acknowledged, 0, WIRE_MARK_WRONG_BACKEND, 0, 0);
	}
	wire_count(c->counts, WIRE_COUNT_INVALID_ACK);
	return wire_answer(ctx, c, TCP_RST, seen->acknowledged, 0, 0, 0, 0);
}

/* Labels of a name that are read; names have three or four. */
#define WIRE_LABELS 16

/* wire_question_end is where the one question of a query ends in a frame, and 0 if
 * there is not exactly one (RFC 1035 section 4.1.2). */
__noinline __u32 wire_question_end(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 at = WIRE_L4 + 20, label;
	int i;

	if (data + WIRE_L4 + 20 > end || AT(__be16, data, WIRE_L4 + 12) != bpf_htons(1) ||
	    AT(__u8, data, WIRE_L4 + 10) & 0x80)
		return 0;
	for (i = 0; i < WIRE_LABELS; i++) {
		if (at > 400 || data + at + 1 > end)
			return 0;
		label = AT(__u8, data, at);
		at += 1 + label;
		if (!label)
			return at + 4;
		if (label > 63)
			return 0;
	}
	return 0;
}

/* The one answer: the question's name again, type A, class IN, 60 s, four bytes. */
struct wire_record_a {
	__be16 name, type, class, ttl_high, ttl_low, length;
	__be32 address;
} __attribute__((packed));

/* wire_server_dns answers a query in the frame that it came in. */
static __always_inline int wire_server_dns(struct xdp_md *ctx, const struct wire_server_ctx *c)
{
	struct wire_record_a record = { bpf_htons(0xc00c), bpf_htons(1), bpf_htons(1), 0, bpf_htons(60), bpf_htons(4),
					settings.vip };
	__u32 at = wire_question_end(ctx), now;
	void *data, *end;

	if (!at || at > 420) {
		wire_count(c->counts, WIRE_COUNT_MALFORMED);
		return XDP_DROP;
	}
	now = ctx->data_end - ctx->data;
	if (bpf_xdp_adjust_tail(ctx, (int)(at + sizeof(record)) - (int)now))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + WIRE_L4 + 20 > end || data + at + sizeof(record) > end)
		return XDP_ABORTED;
	__builtin_memcpy(data + at, &record, sizeof(record));
	/* A response, authoritative, and recursion desired as it was. */
	AT(__be16, data, WIRE_L4 + 10) = (AT(__be16, data, WIRE_L4 + 10) & bpf_htons(0x0100)) | bpf_htons(0x8400);
	AT(__be16, data, WIRE_L4 + 14) = bpf_htons(1);
	AT(__be32, data, WIRE_L4 + 16) = 0;
	wire_count(c->counts, WIRE_COUNT_ESTABLISHED);
	return wire_answer(ctx, c, 0, 0, 0, 0, at + sizeof(record) - WIRE_L4 - 8, WIRE_PAYLOAD_THERE);
}

/* wire_server_datagram counts one of load udp: magic, number, time. */
static __always_inline int wire_server_datagram(struct xdp_md *ctx, const struct wire_server_ctx *c)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 number;

	if (c->seen->payload < 24 || data + WIRE_L4 + 32 > end || AT(__u64, data, WIRE_L4 + 8) != WIRE_MAGIC) {
		wire_count(c->counts, WIRE_COUNT_UNKNOWN_PEER);
		return XDP_DROP;
	}
	number = AT(__u64, data, WIRE_L4 + 16);
	/* The table is filled with 0. */
	if (!wire_first_time(c->seen, number + 1)) {
		wire_count(c->counts, WIRE_COUNT_DUPLICATE);
		return XDP_DROP;
	}
	wire_record(WIRE_LATENCY_RESPONSE, bpf_ktime_get_ns() - AT(__u64, data, WIRE_L4 + 24));
	wire_count(c->counts, WIRE_COUNT_ESTABLISHED);
	return XDP_DROP;
}

#define WIRE_GUE_PORT 6080
#define WIRE_IPIP_LENGTH 20
#define WIRE_GUE_LENGTH 28

/* wire_decap removes the outer headers of IPIP and GUE (variant 1); negative on failure. */
static __always_inline long wire_decap(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 macs;
	__u32 macs_end, outer = WIRE_IPIP_LENGTH;

	if (data + WIRE_L4 + 8 > end || AT(__be16, data, 2 * ETH_ALEN) != bpf_htons(ETH_P_IP) ||
	    AT(__u8, data, WIRE_IP) != WIRE_PLAIN || AT(__be32, data, WIRE_IP + 16) != port.address)
		return 0;
	if (AT(__u8, data, WIRE_IP + 9) == IPPROTO_UDP) {
		if (AT(__be16, data, WIRE_L4 + 2) != bpf_htons(WIRE_GUE_PORT))
			return 0;
		outer = WIRE_GUE_LENGTH;
	} else if (AT(__u8, data, WIRE_IP + 9) != IPPROTO_IPIP) {
		return 0;
	}
	macs = AT(__u64, data, 0);
	macs_end = AT(__u32, data, 8);
	if (bpf_xdp_adjust_head(ctx, outer))
		return -1;
	data = (void *)(long)ctx->data;
	if (data + ETH_HLEN > (void *)(long)ctx->data_end)
		return -1;
	AT(__u64, data, 0) = macs;
	AT(__u32, data, 8) = macs_end;
	AT(__be16, data, 12) = bpf_htons(ETH_P_IP);
	return 0;
}

/* wire_for_server reports whether a packet is for this port, and sets the source of its answer. */
static __always_inline bool wire_for_server(struct wire_server_ctx *c)
{
	__be32 marked;

	c->own = c->seen->destination;
	c->own_port = c->seen->destination_port;
	if (c->own == settings.vip)
		return c->own_port == settings.vip_port;
	if (!port.address || c->own != port.address)
		return false;
	marked = settings.dscp[c->seen->tos >> 2];
	if (marked && c->own_port == settings.vip_port) {
		c->own = marked;
		return true;
	}
	return c->own_port == settings.own_port;
}
