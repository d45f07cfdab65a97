/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The record and the frame of a packet, as received and as sent, for the captures that match it. */
#pragma once

#include "filter.h"
#include "sample.h"
#include "../trace/complete.h"

/* Bytes of unread records, a power of two. */
#define CAPTURE_WAKEUP (1 << 17)

/* About an eighth of a second: a window's packets fit into a ring. */
#define CAPTURE_WINDOW 27

/* capture_copy copies the first bytes of the frame, as many as the candidates need, to `to`, and returns their
 * number. */
static __always_inline __u32 capture_copy(ctx_t *ctx, const struct trace_notes *notes, void *to,
					  __u64 length)
{
	if (length > notes->snap)
		length = notes->snap;
	if (length > CAPTURE_SNAP_MAX)
		length = CAPTURE_SNAP_MAX;
	if (length < ETH_HLEN || ctx_load(ctx, 0, to, length))
		return 0;
	return length;
}

/* capture_begin finds the captures that may match the packet in the notes, and copies the frame for them as
 * received. */
__noinline int capture_begin(ctx_t *ctx)
{
	struct capture_slots *filters = capture_all();
	struct trace_notes *notes = trace_current();

	if (!filters || !notes)
		return 0;
	notes->candidates = 0;
	for (__u32 i = 0; i < CAPTURES_MAX; i++) {
		const struct capture_filter *filter = &filters->slots[i];

		if (i >= filters->used)
			break;
		if (!capture_may_match(filter, &notes->record.received) ||
		    !(notes->drawn ? notes->drawn >> i & 1 : capture_draw(notes, filter, i)))
			continue;
		notes->candidates |= 1U << i;
		if (filter->snap > notes->snap)
			notes->snap = filter->snap;
	}
	if (notes->candidates && notes->snap) {
		notes->record.ingress_length = ctx_length(ctx);
		notes->record.ingress_captured =
			capture_copy(ctx, notes, notes->frames, notes->record.ingress_length);
	}
	return 0;
}

/* capture_of_service says whether the packet is one of the filter's service and backend. A reply is identified by the
 * backend that sent it. */
static __always_inline bool capture_of_service(const struct capture_filter *filter,
					       const struct trace_record *record, __u32 slot)
{
	__u32 service = record->service + 1, *slots;

	if (!filter->by_service && !filter->by_backend)
		return true;
	if (!filter->by_backend && service)
		return service == filter->services[0] || service == filter->services[1];
	slots = bpf_map_lookup_elem(&capture_backends, &record->backend);
	return slots && *slots & 1U << slot;
}

/* capture_matches says whether a filter matches a packet, now that its outcome is known. */
static __always_inline bool capture_matches(const struct capture_filter *filter,
					    const struct trace_record *record, __u32 slot)
{
	const struct trace_tuple *packet = &record->received;

	filter = READ_AFTER(is_weak(), filter, &filter->id);
	if (!filter->id || record->time > filter->until ||
	    !(filter->outcomes >> (record->outcome & 63) & 1))
		return false;
	if (!capture_tuple(filter, packet->protocol, packet->source, packet->source_port,
			   packet->destination, packet->destination_port) &&
	    !((record->reason & TRACE_REPLY) &&
	      capture_tuple(filter, packet->protocol, record->new_destination,
			    record->new_destination_port, record->new_source,
			    record->new_source_port)))
		return false;
	return capture_of_service(filter, record, slot);
}

/* capture_allows enforces the bounds of a capture. CPUs together may exceed them by a packet of each. */
static __always_inline bool capture_allows(const struct capture_filter *filter,
					   struct capture_state *state, __u64 time, __u32 bytes)
{
	__u64 window = time >> CAPTURE_WINDOW;

	if (state->window != window) {
		state->window = window;
		state->in_window = 0;
	}
	if (filter->rate && __sync_fetch_and_add(&state->in_window, 1) >= filter->rate) {
		__sync_fetch_and_add(&state->limited, 1);
		return false;
	}
	if ((filter->most_packets && state->taken >= filter->most_packets) ||
	    (filter->most_bytes && state->bytes + bytes > filter->most_bytes)) {
		__sync_fetch_and_add(&state->beyond, 1);
		return false;
	}
	return true;
}

/* capture_wakeup returns the flags of an output of `size` bytes: its reader is woken up for each CAPTURE_WAKEUP bytes
 * in the ring, and polls for less. To wake it up for each record costs more than all else of a capture. */
static __always_inline __u64 capture_wakeup(void *ring, __u64 size)
{
	__u64 unread = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);

	return (unread ^ (unread + size)) & ~(__u64)(CAPTURE_WAKEUP - 1) ? BPF_RB_FORCE_WAKEUP :
									   BPF_RB_NO_WAKEUP;
}

/* capture_put writes the record and the frames into a slot's ring. */
static __always_inline void capture_put(const struct capture_filter *filter,
					struct trace_notes *notes, __u32 slot, __u64 frames)
{
	struct capture_state *state = bpf_map_lookup_elem(&capture_states, &slot);
	void *ring = bpf_map_lookup_elem(&capture_rings, &slot);
	__u64 size = sizeof(notes->record) + frames;

	if (!state || !ring)
		return;
	__sync_fetch_and_add(&state->matched, 1);
	if (!capture_allows(filter, state, notes->record.time, frames))
		return;
	if (bpf_ringbuf_output(ring, &notes->record, size, capture_wakeup(ring, size))) {
		__sync_fetch_and_add(&state->lost, 1);
		return;
	}
	__sync_fetch_and_add(&state->taken, 1);
	__sync_fetch_and_add(&state->bytes, frames);
}

/* capture_select removes the candidates whose filters do not match. */
static __always_inline void capture_select(const struct capture_slots *filters,
					   struct trace_notes *notes)
{
	for (__u32 i = 0; i < CAPTURES_MAX; i++)
		if ((notes->candidates & 1U << i) &&
		    !capture_matches(&filters->slots[i], &notes->record, i))
			notes->candidates &= ~(1U << i);
}

/* capture_egress copies the frame as sent behind the one as received, and returns the length of both. A dropped packet
 * is not sent. */
static __always_inline __u64 capture_egress(ctx_t *ctx, struct trace_notes *notes)
{
	struct trace_record *record = &notes->record;
	__u64 ingress = record->ingress_captured, egress = 0;

	if (ingress > CAPTURE_SNAP_MAX)
		return 0;
	if (notes->snap && record->outcome < OUTCOME_DROPPED_MALFORMED)
		egress = capture_copy(ctx, notes, notes->frames + ingress, record->frame_length);
	record->egress_captured = egress;
	return ingress + egress;
}

/* capture_end writes the packet to the captures whose filters match. */
__noinline int capture_end(ctx_t *ctx, __u32 outcome)
{
	struct capture_slots *filters = capture_all();
	struct trace_notes *notes = trace_current();
	__u64 frames;

	if (!filters || !notes)
		return 0;
	/* A packet that was not parsed is as received. */
	if (!notes->record.received.family)
		capture_begin(ctx);
	if (!notes->candidates)
		return 0;
	trace_complete(ctx, &notes->record, outcome);
	capture_select(filters, notes);
	if (!notes->candidates)
		return 0;
	frames = capture_egress(ctx, notes);
	if (frames > 2 * CAPTURE_SNAP_MAX)
		return 0;
	for (__u32 i = 0; i < CAPTURES_MAX; i++)
		if (notes->candidates & 1U << i)
			capture_put(&filters->slots[i], notes, i, frames);
	return 0;
}
