/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* These functions record the decisions on each packet, for traces and captures. The sources are compiled twice: only
 * the objects built with TRACED record anything, and the plain program, which forwards while neither a trace nor a
 * capture runs, has empty functions here. A constant fixed at load would keep the branches out of the loaded program,
 * but neither the loads of the constant nor the registers that the compiler reserves for the calls.
 *
 * A decision is recorded where it is made, in memory of its own, and sent to user space with the packet's verdict.
 *
 * Include after one of the ctx_*.h headers. */
#pragma once

#include <stdbool.h>

#include "maps.h"
#include "parse.h"

/* trace_reason is a state or event that a decision depended on besides the configuration. */
enum trace_reason {
	/* The backend is that of a flow's entry. */
	TRACE_KNOWN_FLOW = 1,
	/* The flow is new and gets an entry. */
	TRACE_NEW_FLOW = 2,
	/* An earlier fragment of the datagram had been seen. */
	TRACE_KNOWN_FRAGMENT = 4,
	/* An ICMP error: the decision is by the packet that it quotes. */
	TRACE_QUOTED = 8,
	/* A reply: its source is a backend, and is translated to the VIP. */
	TRACE_REPLY = 16,
	/* The slot has moved, and the flow goes to its previous backend. */
	TRACE_PREVIOUS = 32,
	/* From a backend's port, but not a reply to a client of its service. */
	TRACE_FROM_BACKEND = 64,
	/* The client is near the backends, which would reply to it directly. */
	TRACE_HAIRPIN = 128,
};

#ifndef TRACED

static __always_inline bool dry_run(void) { return false; }
static __always_inline void trace_read(ctx_t *ctx, const struct packet *packet) {}
static __always_inline void trace_service(const struct service *service) {}
static __always_inline void trace_slot(__u32 slot) {}
static __always_inline void trace_backend(__u32 index, __u32 generation) {}
static __always_inline void trace_add_reason(enum trace_reason reason) {}
static __always_inline void trace_end(ctx_t *ctx, enum outcome outcome) {}
static __always_inline void capture_skip(ctx_t *ctx) {}

#else

#include "capture/output.h"
#include "capture/plain.h"
#include "trace/complete.h"
#include "trace/notes.h"

const enum trace_reason *unused_trace_reason __attribute__((unused));

/* These functions are not inlined: deep in the program, the stack has no room for the registers that their callers
 * would spill. */

/* trace_read notes a packet's addresses, ports and flags, once it is parsed. */
static __noinline void trace_read(ctx_t *ctx, const struct packet *packet)
{
	struct trace_notes *notes = trace_current();
	struct trace_tuple *received;

	if (!notes)
		return;
	received = &notes->record.received;
	__builtin_memcpy(received->source, packet->source, sizeof(packet->source));
	__builtin_memcpy(received->destination, packet->destination, sizeof(packet->destination));
	received->source_port = packet->source_port;
	received->destination_port = packet->destination_port;
	received->family = packet->ipv6 ? 6 : 4;
	received->protocol = packet->protocol;
	notes->record.length = packet->length;
	notes->record.tcp_flags = packet->tcp_flags;
	if (!dry_run())
		capture_begin(ctx);
}

/* trace_service notes which service takes the packet. Numbers are kept plus 1 until the end, so that zeroed memory
 * means that there is nothing. */
static __noinline void trace_service(const struct service *service)
{
	struct trace_notes *notes = trace_current();

	if (!notes)
		return;
	notes->record.service = service->id + 1;
	notes->record.mode = service->mode;
	notes->record.scheduler = service->scheduler;
}

/* trace_slot records which slot of the service's table was looked up: 0 to table_size - 1. */
static __noinline void trace_slot(__u32 slot)
{
	struct trace_notes *notes = trace_current();

	if (notes)
		notes->record.slot = slot + 1;
}

/* trace_backend notes which backend takes the packet, or which it came from. */
static __noinline void trace_backend(__u32 index, __u32 generation)
{
	struct trace_notes *notes = trace_current();

	if (!notes)
		return;
	notes->record.backend = index + 1;
	notes->record.backend_generation = generation;
}

/* trace_add_reason notes a reason; those noted before stay. */
static __noinline void trace_add_reason(enum trace_reason reason)
{
	struct trace_notes *notes = trace_current();

	if (notes)
		notes->record.reason |= reason;
}

/* trace_send writes the record of a dry run to trace_ring, and that of a real packet to the captures whose filters
 * match, and clears the notes for the next packet. `head` and the frames have lengths beside them, and need not be
 * cleared. */
static __noinline int trace_send(ctx_t *ctx, enum outcome outcome)
{
	struct trace_notes *notes = trace_current();

	if (!notes)
		return 0;
	if (dry_run()) {
		trace_complete(ctx, &notes->record, outcome);
		bpf_ringbuf_output(&trace_ring, &notes->record, sizeof(notes->record), 0);
	} else {
		capture_end(ctx, outcome);
		notes->candidates = 0;
		notes->snap = 0;
		notes->drawn = 0;
	}
	__builtin_memset(&notes->record, 0, offsetof(struct trace_record, head));
	return 0;
}

/* trace_end is called at the end of the program, when the packet is as sent. */
static __always_inline void trace_end(ctx_t *ctx, enum outcome outcome)
{
	trace_send(ctx, outcome);
}

#endif
