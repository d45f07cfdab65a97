/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The sender: it makes the frames that are no answers. It is run once for each frame, and does the first of these that
 * is due: begin the next connection; follow those that were begun (FIN, RST, request); retransmit packets without an
 * answer; a flood's next SYN. */
#pragma once

#include "client.h"

/* Connections that are checked in one run. */
#define WIRE_SCAN_BATCH 8
/* Frames that share a reading of the clock: a power of two that batches are multiples of. */
#define WIRE_FRAMES_A_READING 16
/* Timeout of the follower for a connection to be established, in ns; after it the retries handle the connection. */
#define WIRE_ESTABLISH_TIMEOUT 20000000ULL

/* wire_run is the context of one run of the sender. */
struct wire_run {
	const struct wire_control *control;
	struct wire_progress *sender;
	__u64 now;
};

/* wire_now reads the clock. Reading it costs half as much as a frame: where there is no rate, one reading serves a few
 * frames, which are sent together anyway. */
static __always_inline __u64 wire_now(const struct wire_control *control, struct wire_progress *sender)
{
	if (control->interval || control->flood_interval || control->follow_interval ||
	    !(sender->runs & (WIRE_FRAMES_A_READING - 1)))
		sender->now = bpf_ktime_get_ns();
	return sender->now;
}

/* wire_late is the delay of an event that was due at a multiple of an interval, in ns; negative: it is not due yet. */
static __always_inline __s64 wire_late(const struct wire_run *t, __u64 start, __u64 interval, __u64 nth)
{
	return (__s64)(t->now - start - (nth * interval >> WIRE_FRACTION));
}

/* wire_send writes a frame of a connection and sends it by its client port. */
static __always_inline int wire_send(struct xdp_md *ctx, const struct wire_run *t, __u32 slot, __u8 protocol,
				     __u8 flags, __u32 sequence, __u32 acknowledged, __u16 window, __u16 payload)
{
	struct wire_tuple tuple = wire_tuple(slot);
	struct wire_segment s = {
		.from = settings.client[tuple.client].mac,
		.to = wire_next(slot),
		.source = tuple.address,
		.destination = settings.vip,
		.source_port = tuple.port,
		.destination_port = settings.vip_port,
		.sequence = sequence,
		.acknowledged = acknowledged,
		.window = window,
		.payload = payload,
		.flags = flags,
		.protocol = protocol,
		.content = WIRE_PAYLOAD_REQUEST,
	};

	if (wire_write(ctx, &s))
		return XDP_ABORTED;
	t->sender->sent++;
	return bpf_redirect_map(&wire_devices, tuple.client, 0);
}

/* wire_send_tcp sends a segment of a connection in the state it is in. */
static __always_inline int wire_send_tcp(struct xdp_md *ctx, const struct wire_run *t, __u32 slot, __u32 first,
					 const struct wire_connection *c, __u8 flags, __u32 sequence, __u16 payload)
{
	return wire_send(ctx, t, slot, IPPROTO_TCP, flags, sequence, flags & TCP_ACK ? c->expects : 0,
			 flags & TCP_SYN ? WIRE_WINDOW : wire_window(t->control, first, c->received), payload);
}

/* wire_send_query sends a DNS query; its identification is of the connection. */
static __always_inline int wire_send_query(struct xdp_md *ctx, const struct wire_run *t, __u32 slot, __u32 first)
{
	int verdict = wire_send(ctx, t, slot, IPPROTO_UDP, 0, 0, 0, 0, t->control->request);
	void *data = (void *)(long)ctx->data;
	__u16 *check, fixed;

	if (data + WIRE_L4 + 10 > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	check = data + WIRE_L4 + 6;
	fixed = checksum_fix(*check, checksum_change16(AT(__u16, data, WIRE_L4 + 8), first));
	*check = fixed ?: 0xffff;
	AT(__be16, data, WIRE_L4 + 8) = first;
	return verdict;
}

/* wire_send_datagram sends one of load udp. */
static __always_inline int wire_send_datagram(struct xdp_md *ctx, const struct wire_run *t, __u32 slot, __u64 number)
{
	struct wire_tuple tuple = wire_tuple(slot);
	struct wire_segment s = {
		.from = settings.client[tuple.client].mac,
		.to = wire_next(slot),
		.source = tuple.address,
		.destination = settings.vip,
		.source_port = tuple.port,
		.destination_port = settings.vip_port,
		.payload = t->control->frame - WIRE_L4 - 8,
		.protocol = IPPROTO_UDP,
		.content = WIRE_PAYLOAD_WORDS,
		.words = { WIRE_MAGIC, number, t->now },
	};

	if (wire_write(ctx, &s))
		return XDP_ABORTED;
	t->sender->sent++;
	return bpf_redirect_map(&wire_devices, tuple.client, 0);
}

/* wire_begin sends the first packet of a connection, or a query. */
static __always_inline int wire_begin(struct xdp_md *ctx, const struct wire_run *t, struct wire_connection *c,
				      __u32 slot, __u32 epoch)
{
	__u32 first = wire_first(slot, epoch);

	c->began = t->now;
	c->bad = 0;
	c->received = 0;
	c->resend = wire_ticks(t->now) + t->control->timeout;
	*(volatile __u32 *)&c->word = wire_word(epoch, 1, WIRE_ASKED);
	if (t->control->kind == WIRE_DNS)
		return wire_send_query(ctx, t, slot, first);
	return wire_send_tcp(ctx, t, slot, first, c, TCP_SYN, first, 0);
}

/* wire_open begins the next connection if it is due. -1: nothing was done. */
static __always_inline int wire_open(struct xdp_md *ctx, const struct wire_run *t)
{
	const struct wire_control *control = t->control;
	struct wire_progress *sender = t->sender;
	__u64 n = sender->opened;
	__u32 capacity = settings.capacity ?: 1, zero = 0;
	__u64 epoch = n / capacity;
	__u32 slot = n - epoch * capacity;
	struct wire_shared *shared;
	struct wire_connection *c;
	__s64 late;

	if (n >= *(volatile __u64 *)&control->open_to)
		return -1;
	/* Written last: Tester.begin(). */
	control = READ_AFTER(settings.weak, control, &control->open_to);
	late = wire_late(t, control->start, control->interval, n - control->first);
	if (late < 0)
		return -1;
	shared = bpf_map_lookup_elem(&wire_shared_word, &zero);
	c = wire_connection(slot);
	if (!c || !shared)
		return -1;
	if (control->outstanding &&
	    (__s64)(n - sender->no_answer - sender->checksum - *(volatile __u64 *)&shared->answered) >=
		    control->outstanding)
		return -1;
	if (control->kind != WIRE_UDP && !wire_is_over(wire_state_of(c->word)))
		return -1;
	if (n == control->first)
		sender->began = t->now;
	sender->ended = t->now;
	if (control->interval && (__u64)late > sender->behind)
		sender->behind = late;
	sender->opened = n + 1;
	if (control->kind == WIRE_UDP)
		return wire_send_datagram(ctx, t, slot, n);
	return wire_begin(ctx, t, c, slot, epoch);
}

/* wire_lookup_number is the connection with a number, if its place is not reused by a later one. */
static __always_inline struct wire_connection *wire_lookup_number(__u64 n, __u32 *slot, __u32 *first)
{
	__u32 capacity = settings.capacity ?: 1;
	__u64 epoch = n / capacity;
	struct wire_connection *c;

	*slot = n - epoch * capacity;
	*first = wire_first(*slot, epoch);
	c = wire_connection(*slot);
	return c && wire_epoch_of(c->word) == (epoch & 0xffff) ? c : NULL;
}

/* wire_transition changes a connection's state, if no other program has. */
static __always_inline bool wire_transition(const struct wire_run *t, struct wire_connection *c, __u32 word,
					    __u32 tries, enum wire_state state)
{
	c->resend = wire_ticks(t->now) + (t->control->timeout << (tries ? tries - 1 : 0 & 7));
	return __sync_val_compare_and_swap(&c->word, word, wire_word(wire_epoch_of(word), tries, state)) == word;
}

static __always_inline int wire_send_fin(struct xdp_md *ctx, const struct wire_run *t, struct wire_connection *c,
					 __u32 slot, __u32 first)
{
	t->sender->finished++;
	return wire_send_tcp(ctx, t, slot, first, c, TCP_FIN | TCP_ACK, first + 1 + t->control->request, 0);
}

static __always_inline int wire_send_request(struct xdp_md *ctx, const struct wire_run *t, struct wire_connection *c,
					     __u32 slot, __u32 first)
{
	t->sender->requested++;
	return wire_send_tcp(ctx, t, slot, first, c, TCP_ACK | TCP_PSH, first + 1, t->control->request);
}

/* wire_send_reset resets a connection in the state it was in. */
static __always_inline int wire_send_reset(struct xdp_md *ctx, const struct wire_run *t, struct wire_connection *c,
					   __u32 slot, __u32 first, enum wire_state state)
{
	__u32 sequence = wire_sent(t->control, first, state);

	/* Its sequence number when it failed is not known: a reset with the first number is at worst ignored. */
	if (state == WIRE_FAILED)
		sequence = first + 1;
	t->sender->reset++;
	return wire_send_tcp(ctx, t, slot, first, c, TCP_RST, sequence, 0);
}

/* wire_follow_one does the follower's action to a connection. -1: nothing to do; -2: it
 * is too early. */
static __always_inline int wire_follow_one(struct xdp_md *ctx, const struct wire_run *t, __u64 n)
{
	enum wire_action action = t->control->action;
	struct wire_connection *c;
	enum wire_state state;
	__u32 slot, first, word;

	c = wire_lookup_number(n, &slot, &first);
	if (!c)
		return -1;
	word = *(volatile __u32 *)&c->word;
	state = wire_state_of(word);
	if (action == WIRE_RESET) {
		if (state == WIRE_FREE || state == WIRE_CLOSED || !wire_transition(t, c, word, 0, WIRE_FREE))
			return -1;
		return wire_send_reset(ctx, t, c, slot, first, state);
	}
	if (state == WIRE_ASKED && t->now - c->began < WIRE_ESTABLISH_TIMEOUT)
		return -2;
	if (state != WIRE_ESTABLISHED)
		return -1;
	if (action == WIRE_FINISH)
		return wire_transition(t, c, word, 1, WIRE_CLOSING) ? wire_send_fin(ctx, t, c, slot, first) : -1;
	c->began = t->now;
	return wire_transition(t, c, word, 1, WIRE_REQUESTED) ? wire_send_request(ctx, t, c, slot, first) : -1;
}

/* wire_follow goes on with the follower. -1: nothing was sent. */
static __always_inline int wire_follow(struct xdp_md *ctx, const struct wire_run *t)
{
	const struct wire_control *control = t->control;
	struct wire_progress *sender = t->sender;
	__u64 to, max;
	int i, verdict;

	if (control->action == WIRE_NOTHING)
		return -1;
	/* Written last: Tester.follow(). */
	control = READ_AFTER(settings.weak, control, &control->action);
	if (sender->follow_id != control->follow_id) {
		sender->followed = control->follow_from;
		/* The connections of the new action may wait again. */
		if (sender->pass_low > control->follow_from)
			sender->pass_low = control->follow_from;
		sender->follow_id = control->follow_id;
	}
	max = sender->opened > control->lag ? sender->opened - control->lag : 0;
	to = control->follow_to;
	if (to > max)
		to = max;
	for (i = 0; i < WIRE_SCAN_BATCH && sender->followed < to; i++) {
		if (wire_late(t, control->follow_start, control->follow_interval, sender->followed - control->follow_from) < 0)
			return -1;
		verdict = wire_follow_one(ctx, t, sender->followed);
		if (verdict == -2)
			return -1;
		sender->followed++;
		if (verdict >= 0)
			return verdict;
	}
	return -1;
}

/* wire_resend retransmits the packet whose answer a connection waits for. */
static __always_inline int wire_resend(struct xdp_md *ctx, const struct wire_run *t, struct wire_connection *c,
				       __u32 slot, __u32 first, enum wire_state state)
{
	t->sender->retransmitted++;
	switch (state) {
	case WIRE_ASKED:
		if (t->control->kind == WIRE_DNS)
			return wire_send_query(ctx, t, slot, first);
		return wire_send_tcp(ctx, t, slot, first, c, TCP_SYN, first, 0);
	case WIRE_REQUESTED:
		if (!c->received)
			return wire_send_tcp(ctx, t, slot, first, c, TCP_ACK | TCP_PSH, first + 1, t->control->request);
		/* The response goes on with this acknowledgement. */
		return wire_send_tcp(ctx, t, slot, first, c, TCP_ACK, first + 1 + t->control->request, 0);
	default:
		return wire_send_tcp(ctx, t, slot, first, c, TCP_FIN | TCP_ACK, first + 1 + t->control->request, 0);
	}
}

/* wire_awaits_answer reports whether a connection in this state waits for an answer. */
static __always_inline bool wire_awaits_answer(const struct wire_run *t, enum wire_state state)
{
	/* A follower that closes has gone on without it. */
	if (state == WIRE_ESTABLISHED)
		return t->control->action == WIRE_FINISH || t->control->action == WIRE_REQUEST;
	return state == WIRE_ASKED || state == WIRE_REQUESTED || state == WIRE_CLOSING || state == WIRE_LAST_ACK;
}

/* wire_abandon ends a connection that gets no answer. */
static __always_inline void wire_abandon(const struct wire_run *t, struct wire_connection *c, __u32 word)
{
	if (!wire_transition(t, c, word, 1, WIRE_FAILED))
		return;
	if (c->bad)
		t->sender->checksum++;
	else
		t->sender->no_answer++;
	/* It may have been counted among the answered before. */
	if (wire_state_of(word) != WIRE_ASKED && t->control->outstanding && !t->control->count_sessions) {
		__u32 zero = 0;
		struct wire_shared *shared = bpf_map_lookup_elem(&wire_shared_word, &zero);

		if (shared)
			__sync_fetch_and_add(&shared->answered, -1);
	}
}

/* wire_retry_one retransmits for one connection, if that is due. -1: nothing was sent. */
static __always_inline int wire_retry_one(struct xdp_md *ctx, const struct wire_run *t, __u64 n, bool *waits)
{
	struct wire_connection *c;
	enum wire_state state;
	__u32 slot, first, word, tries;

	*waits = false;
	c = wire_lookup_number(n, &slot, &first);
	if (!c)
		return -1;
	word = *(volatile __u32 *)&c->word;
	state = wire_state_of(word);
	if (!wire_awaits_answer(t, state))
		return -1;
	*waits = true;
	if (t->control->give_up) {
		wire_abandon(t, c, word);
		return -1;
	}
	if ((__s32)(wire_ticks(t->now) - c->resend) < 0)
		return -1;
	if (state == WIRE_ESTABLISHED) {
		/* The follower may still come to it. */
		if (n >= t->sender->followed)
			return -1;
		if (t->control->action == WIRE_FINISH)
			return wire_transition(t, c, word, 1, WIRE_CLOSING) ? wire_send_fin(ctx, t, c, slot, first) : -1;
		c->began = t->now;
		return wire_transition(t, c, word, 1, WIRE_REQUESTED) ? wire_send_request(ctx, t, c, slot, first) : -1;
	}
	tries = wire_tries_of(word);
	if (tries >= t->control->tries) {
		wire_abandon(t, c, word);
		return -1;
	}
	return wire_transition(t, c, word, tries + 1, state) ? wire_resend(ctx, t, c, slot, first, state) : -1;
}

/* wire_retry goes on with the pass over all that may wait. -1: nothing was sent. */
static __always_inline int wire_retry(struct xdp_md *ctx, const struct wire_run *t)
{
	struct wire_progress *sender = t->sender;
	__u64 capacity = settings.capacity;
	int i, verdict;
	bool waits;

	if (sender->retried >= sender->pass_end) {
		if ((__s64)(t->now - sender->pass_at) < 0 && !t->control->give_up)
			return -1;
		/* The pass that ended has found the first connection that waits. */
		sender->oldest = sender->pass_low;
		if (sender->opened > capacity && sender->oldest < sender->opened - capacity)
			sender->oldest = sender->opened - capacity;
		sender->pass_at = t->now + ((__u64)t->control->timeout << (WIRE_TICK - 3));
		sender->retried = sender->oldest;
		sender->pass_end = sender->opened;
		sender->pass_low = sender->opened;
	}
	for (i = 0; i < WIRE_SCAN_BATCH && sender->retried < sender->pass_end; i++) {
		verdict = wire_retry_one(ctx, t, sender->retried, &waits);
		if (waits && sender->retried < sender->pass_low)
			sender->pass_low = sender->retried;
		sender->retried++;
		if (verdict >= 0)
			return verdict;
	}
	return -1;
}

/* wire_flood sends the flood's next SYN: source address, port and number are a function
 * of the seed and the frame's number. */
static __always_inline int wire_flood(struct xdp_md *ctx, const struct wire_run *t)
{
	const struct wire_control *control = t->control;
	__u64 n = t->sender->flooded, random;
	struct wire_segment s = {
		.from = settings.client[control->flood_port & (WIRE_PORTS - 1)].mac,
		.destination = settings.vip,
		.destination_port = settings.vip_port,
		.window = WIRE_WINDOW,
		.flags = TCP_SYN,
		.protocol = IPPROTO_TCP,
	};

	if (n >= *(volatile __u64 *)&control->flood_to)
		return -1;
	/* Written last: Tester.flood(). */
	control = READ_AFTER(settings.weak, control, &control->flood_to);
	if (wire_late(t, control->flood_start, control->flood_interval, n - control->flood_first) < 0)
		return -1;
	t->sender->flooded = n + 1;
	random = wire_mix(settings.seed + (n + 1) * HASH_MULTIPLIER);
	s.to = wire_next((__u32)random);
	s.source = control->flood_source | ((__u32)random & control->flood_wild);
	s.source_port = bpf_htons(1024 + (__u16)((random >> 48) * 64512 >> 16));
	s.sequence = wire_mix(random);
	if (wire_write(ctx, &s))
		return XDP_ABORTED;
	t->sender->sent++;
	return bpf_redirect_map(&wire_devices, control->flood_port, 0);
}

/* wire_run_sender does the work that is due. The order alternates from frame to frame, so that no work starves
 * another. */
static __always_inline int wire_run_sender(struct xdp_md *ctx, const struct wire_run *t)
{
	bool odd = t->sender->runs++ & 1;
	int verdict = -1;

	if (odd)
		verdict = wire_open(ctx, t);
	if (verdict < 0)
		verdict = wire_follow(ctx, t);
	if (verdict < 0)
		verdict = wire_retry(ctx, t);
	if (verdict < 0 && !odd)
		verdict = wire_open(ctx, t);
	if (verdict < 0)
		verdict = wire_flood(ctx, t);
	return verdict < 0 ? XDP_DROP : verdict;
}
