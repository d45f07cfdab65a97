/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A client port: a packet for one of its connections is compared with the expected one, and answered in the same frame.
 * A packet that belongs to no connection, or comes too late or twice, is counted by name and changes no result. */
#pragma once

#include "frame.h"

/* wire_client_ctx is the context of a packet at a client port, with its connection. */
struct wire_client_ctx {
	const struct wire_control *control;
	struct wire_counts *counts;
	struct wire_connection *connection;
	struct wire_packet *seen;
	__u64 now;
	__u32 slot, word;
	/* The client's first sequence number. */
	__u32 first;
};

static __always_inline __u32 wire_ticks(__u64 ns) { return ns >> WIRE_TICK; }

/* wire_set_state changes a connection's state, if no other program has. */
static __always_inline bool wire_set_state(struct wire_client_ctx *v, enum wire_state state)
{
	__u32 next = wire_word(wire_epoch_of(v->word), 1, state);

	v->connection->resend = wire_ticks(v->now) + v->control->timeout;
	v->connection->bad = 0;
	if (__sync_val_compare_and_swap(&v->connection->word, v->word, next) != v->word)
		return false;
	v->word = next;
	return true;
}

/* wire_sent is the client's next sequence number in a state. */
static __always_inline __u32 wire_sent(const struct wire_control *control, __u32 first, enum wire_state state)
{
	__u32 request = control->request;

	if (state == WIRE_ASKED || state == WIRE_ESTABLISHED)
		return first + 1;
	if (state == WIRE_REQUESTED || state == WIRE_PROVEN)
		return first + 1 + request;
	return first + 2 + request;
}

/* wire_response_length is the length of a connection's response; 0: until the other side closes. */
static __always_inline __u32 wire_response_length(const struct wire_control *control, __u32 first)
{
	return control->mixed ? control->sizes[first & (WIRE_SIZES - 1)] : control->response;
}

/* wire_window is the TCP window that a connection advertises. Server ports send no more than that in a segment, which
 * gives the responses of a mix their lengths. */
static __always_inline __u16 wire_window(const struct wire_control *control, __u32 first, __u32 received)
{
	__u32 remaining = wire_response_length(control, first);

	if (!control->mixed)
		return WIRE_WINDOW;
	remaining = remaining > received ? remaining - received : 0;
	return remaining < WIRE_WINDOW ? remaining : WIRE_WINDOW;
}

/* wire_reply turns the received segment into its answer, and sends that back out. */
static __always_inline int wire_reply(struct xdp_md *ctx, struct wire_client_ctx *v, __u8 flags, __u32 sequence,
				      __u16 payload)
{
	struct wire_segment s = {
		.from = port.mac,
		.to = wire_next(v->slot),
		.source = v->seen->destination,
		.destination = v->seen->source,
		.source_port = v->seen->destination_port,
		.destination_port = v->seen->source_port,
		.sequence = sequence,
		.acknowledged = v->connection->expects,
		.window = wire_window(v->control, v->first, v->connection->received),
		.payload = payload,
		.flags = flags,
		.protocol = IPPROTO_TCP,
		.content = WIRE_PAYLOAD_REQUEST,
	};

	if (wire_write(ctx, &s))
		return XDP_ABORTED;
	wire_count(v->counts, WIRE_COUNT_SENT);
	return XDP_TX;
}

/* wire_acknowledge acknowledges once more all that has been received in order. */
static __always_inline int wire_acknowledge(struct xdp_md *ctx, struct wire_client_ctx *v)
{
	return wire_reply(ctx, v, TCP_ACK, wire_sent(v->control, v->first, wire_state_of(v->word)), 0);
}

static __always_inline bool wire_is_over(enum wire_state state)
{
	return state == WIRE_FREE || state >= WIRE_CLOSED;
}

/* wire_fail ends a connection. */
static __always_inline int wire_fail(struct wire_client_ctx *v, enum wire_count why)
{
	enum wire_state state = wire_state_of(v->word);

	if (!wire_set_state(v, WIRE_FAILED))
		return XDP_DROP;
	wire_count(v->counts, why);
	if (state == WIRE_ASKED || v->control->count_sessions)
		wire_count_answered(v->control);
	if (state != WIRE_ASKED)
		wire_count(v->counts, WIRE_COUNT_BROKEN);
	return XDP_DROP;
}

static __always_inline int wire_client_reset(struct wire_client_ctx *v)
{
	enum wire_state state = wire_state_of(v->word);
	__u32 ahead = v->seen->acknowledged - v->first;

	/* RFC 9293 section 3.5.3: a reset must fit the connection. */
	if (wire_is_over(state) ||
	    (v->seen->flags & TCP_ACK ? ahead < 1 || ahead > 2 + v->control->request
				      : v->seen->sequence != v->connection->expects)) {
		/* Those that a cleared table's resets are answered with come here, too. */
		wire_count(v->counts, WIRE_COUNT_LATE);
		return XDP_DROP;
	}
	return wire_fail(v, v->seen->window == WIRE_MARK_WRONG_BACKEND ? WIRE_COUNT_FAILED_WRONG_BACKEND
								       : WIRE_COUNT_FAILED_RESET);
}

/* wire_client_established answers a SYN-ACK. */
static __always_inline int wire_client_established(struct xdp_md *ctx, struct wire_client_ctx *v)
{
	const struct wire_control *control = v->control;

	if (v->seen->acknowledged != v->first + 1) {
		wire_count(v->counts, WIRE_COUNT_LATE);
		return XDP_DROP;
	}
	if (wire_state_of(v->word) != WIRE_ASKED) {
		wire_count(v->counts, WIRE_COUNT_DUPLICATE);
		/* Our ACK may have been lost. */
		return wire_is_over(wire_state_of(v->word)) ? XDP_DROP : wire_acknowledge(ctx, v);
	}
	v->connection->expects = v->seen->sequence + 1;
	v->connection->received = 0;
	wire_record(WIRE_LATENCY_SETUP, v->now - v->connection->began);
	v->connection->began = v->now;
	if (!wire_set_state(v, control->request_at_once ? WIRE_REQUESTED : WIRE_ESTABLISHED))
		return XDP_DROP;
	wire_count(v->counts, WIRE_COUNT_ESTABLISHED);
	if (!control->count_sessions)
		wire_count_answered(control);
	if (control->request_at_once) {
		int verdict = wire_reply(ctx, v, TCP_ACK | TCP_PSH, v->first + 1, control->request);

		/* A frame without room for the request: the follower sends that. */
		if (verdict != XDP_ABORTED || !wire_set_state(v, WIRE_ESTABLISHED))
			return verdict;
	}
	return wire_reply(ctx, v, TCP_ACK, v->first + 1, 0);
}

/* wire_receive_payload accounts for a payload that is next in sequence; false if it is not. */
static __always_inline bool wire_receive_payload(struct wire_client_ctx *v)
{
	struct wire_connection *c = v->connection;

	if (v->seen->sequence != c->expects) {
		if ((__s32)(v->seen->sequence - c->expects) < 0)
			wire_count(v->counts, WIRE_COUNT_DUPLICATE);
		return false;
	}
	if (!c->received && v->seen->payload && wire_state_of(v->word) == WIRE_REQUESTED)
		wire_record(WIRE_LATENCY_RESPONSE, v->now - c->began);
	c->received += v->seen->payload;
	c->expects += v->seen->payload + !!(v->seen->flags & TCP_FIN);
	c->resend = wire_ticks(v->now) + v->control->timeout;
	/* It makes progress: the count of retries begins again. */
	if (wire_tries_of(v->word) > 1)
		wire_set_state(v, wire_state_of(v->word));
	return true;
}

/* wire_client_response handles a segment in state REQUESTED: a part of the response, its end, or both. */
static __always_inline int wire_client_response(struct xdp_md *ctx, struct wire_client_ctx *v)
{
	__u32 length = wire_response_length(v->control, v->first), sent = v->first + 1 + v->control->request;

	if (!v->seen->payload && !(v->seen->flags & TCP_FIN))
		return XDP_DROP;
	if (!wire_receive_payload(v))
		return wire_acknowledge(ctx, v);
	if (v->seen->flags & TCP_FIN) {
		if (wire_set_state(v, WIRE_LAST_ACK))
			return wire_reply(ctx, v, TCP_FIN | TCP_ACK, sent, 0);
		return XDP_DROP;
	}
	if (!length || v->connection->received < length)
		return wire_acknowledge(ctx, v);
	if (v->control->keep) {
		if (wire_set_state(v, WIRE_PROVEN))
			wire_count(v->counts, WIRE_COUNT_COMPLETED);
		return wire_acknowledge(ctx, v);
	}
	if (!wire_set_state(v, WIRE_CLOSING))
		return XDP_DROP;
	return wire_reply(ctx, v, TCP_FIN | TCP_ACK, sent, 0);
}

static __always_inline void wire_client_closed(struct wire_client_ctx *v)
{
	if (!wire_set_state(v, WIRE_CLOSED))
		return;
	wire_count(v->counts, WIRE_COUNT_COMPLETED);
	if (v->control->count_sessions)
		wire_count_answered(v->control);
}

/* wire_client_closing handles a segment after our FIN. */
static __always_inline int wire_client_closing(struct xdp_md *ctx, struct wire_client_ctx *v)
{
	__u32 sent = wire_sent(v->control, v->first, WIRE_CLOSING);
	bool ours_came = v->seen->acknowledged == sent;

	if (wire_state_of(v->word) == WIRE_LAST_ACK) {
		if (ours_came)
			wire_client_closed(v);
		else
			wire_count(v->counts, WIRE_COUNT_DUPLICATE);
		return XDP_DROP;
	}
	if (!v->seen->payload && !(v->seen->flags & TCP_FIN))
		return XDP_DROP;
	if (!wire_receive_payload(v))
		return wire_acknowledge(ctx, v);
	if (v->seen->flags & TCP_FIN) {
		if (ours_came)
			wire_client_closed(v);
		else if (!wire_set_state(v, WIRE_LAST_ACK))
			return XDP_DROP;
	}
	return wire_reply(ctx, v, TCP_ACK, sent, 0);
}

/* wire_client_tcp handles a segment for a connection of this port. */
static __always_inline int wire_client_tcp(struct xdp_md *ctx, struct wire_client_ctx *v)
{
	enum wire_state state = wire_state_of(v->word);
	__u8 flags = v->seen->flags;

	if (flags & TCP_RST)
		return wire_client_reset(v);
	if (flags & TCP_SYN)
		return wire_client_established(ctx, v);
	switch (state) {
	case WIRE_REQUESTED:
		return wire_client_response(ctx, v);
	case WIRE_CLOSING:
	case WIRE_LAST_ACK:
		return wire_client_closing(ctx, v);
	case WIRE_ESTABLISHED:
	case WIRE_PROVEN:
		/* The other side closes a connection that is to be held. */
		if (flags & TCP_FIN && v->seen->sequence == v->connection->expects)
			return wire_fail(v, WIRE_COUNT_FAILED_RESET);
		return XDP_DROP;
	case WIRE_CLOSED:
		if (flags & TCP_FIN && v->seen->acknowledged == wire_sent(v->control, v->first, state)) {
			/* Our last ACK was lost. */
			wire_count(v->counts, WIRE_COUNT_DUPLICATE);
			return wire_acknowledge(ctx, v);
		}
		break;
	default:
		break;
	}
	wire_count(v->counts, WIRE_COUNT_LATE);
	return XDP_DROP;
}

/* wire_same_question compares the question in an answer with the query's. */
static __always_inline bool wire_same_question(struct xdp_md *ctx, const struct wire_client_ctx *v)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 i, length = v->control->question;

	for (i = 0; i < 260 && i < length; i++) {
		if (data + WIRE_L4 + 20 + i + 1 > end || AT(__u8, data, WIRE_L4 + 20 + i) != v->control->content[12 + i])
			return false;
	}
	return true;
}

/* wire_client_dns handles a datagram for a query of this port. */
static __always_inline int wire_client_dns(struct xdp_md *ctx, struct wire_client_ctx *v)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__be16 id, flags, answers;

	if (v->seen->payload < 12 || data + WIRE_L4 + 20 > end) {
		wire_count(v->counts, WIRE_COUNT_MALFORMED);
		return XDP_DROP;
	}
	id = AT(__be16, data, WIRE_L4 + 8);
	flags = AT(__be16, data, WIRE_L4 + 10);
	answers = AT(__be16, data, WIRE_L4 + 14);
	if (id != (__be16)v->first || !wire_same_question(ctx, v)) {
		wire_count(v->counts, WIRE_COUNT_LATE);
		return XDP_DROP;
	}
	if (wire_state_of(v->word) != WIRE_ASKED) {
		wire_count(v->counts, wire_state_of(v->word) == WIRE_CLOSED ? WIRE_COUNT_DUPLICATE : WIRE_COUNT_LATE);
		return XDP_DROP;
	}
	/* A response, without an error, with an answer (RFC 1035 section 4.1.1). */
	if ((flags & bpf_htons(0x800f)) != bpf_htons(0x8000) || !answers)
		return wire_fail(v, WIRE_COUNT_FAILED_RESET);
	wire_record(WIRE_LATENCY_RESPONSE, v->now - v->connection->began);
	if (!wire_set_state(v, WIRE_CLOSED))
		return XDP_DROP;
	wire_count(v->counts, WIRE_COUNT_ESTABLISHED);
	wire_count(v->counts, WIRE_COUNT_COMPLETED);
	wire_count_answered(v->control);
	return XDP_DROP;
}

/* wire_for_flood reports whether a packet answers a flood's. */
static __always_inline bool wire_for_flood(const struct wire_control *control, __be32 address)
{
	return control->flood_source && (address & ~control->flood_wild) == control->flood_source;
}

/* wire_client_packet handles a packet for an address of this port, or a flood's. */
static __always_inline int wire_client_packet(struct xdp_md *ctx, struct wire_client_ctx *v, enum wire_read read)
{
	struct wire_packet *seen = v->seen;

	v->slot = ~0U;
	if (seen->source == settings.vip && seen->source_port == settings.vip_port &&
	    (seen->protocol == IPPROTO_TCP) == (v->control->kind == WIRE_TCP))
		v->slot = wire_slot(port.index, seen->destination, seen->destination_port);
	v->connection = v->slot < settings.capacity ? wire_connection(v->slot) : NULL;
	if (read == WIRE_READ_CHECKSUM) {
		wire_count(v->counts, WIRE_COUNT_CHECKSUM);
		if (v->connection)
			v->connection->bad = 1;
		return XDP_DROP;
	}
	if (!v->connection) {
		wire_count(v->counts, WIRE_COUNT_UNKNOWN_PEER);
		return XDP_DROP;
	}
	v->word = v->connection->word;
	v->first = wire_first(v->slot, wire_epoch_of(v->word));
	return seen->protocol == IPPROTO_TCP ? wire_client_tcp(ctx, v) : wire_client_dns(ctx, v);
}
