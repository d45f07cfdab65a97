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

#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Bytes of the frame in a record. Ethernet with a tag, an IPv6 and UDP tunnel, and inner IPv6 with TCP take 126. */
#define TRACE_HEAD 128
/* The value of a number that is absent. */
#define TRACE_NONE 0xffffffff

enum capture_limit {
	/* Captures and live traces that run at once. */
	CAPTURES_MAX = 8,
	/* The largest number of bytes of a frame that a capture gets. */
	CAPTURE_SNAP_MAX = 9216,
};

/* trace_record is the outcome of a packet, with the reasons for it. Addresses and ports are in network byte order; an
 * IPv4 address is in the first word. */
struct trace_record {
	/* The time of the verdict, in nanoseconds of the monotonic clock. */
	__u64 time;
	/* The packet's addresses and ports as received. All 0 where it could not be parsed. */
	__be32 source[4];
	__be32 destination[4];
	__be16 source_port;
	__be16 destination_port;
	/* Length of the IP packet, in bytes. */
	__u32 length;
	/* The interface that it came in on, by its index. */
	__u32 interface;
	/* The service by its id, the slot of the service's table, and the backend by its index and the index's owner;
	 * TRACE_NONE where none was selected, or no slot was looked up. */
	__u32 service;
	__u32 slot;
	__u32 backend;
	__u32 backend_generation;
	/* Length of the frame as sent, in bytes. */
	__u32 frame_length;
	/* Outer addresses and ports of the packet as sent. */
	__be32 new_source[4];
	__be32 new_destination[4];
	__be16 new_source_port;
	__be16 new_destination_port;
	/* How many bytes of `head` are valid. */
	__u32 head_length;
	/* The IP version, 4 or 6, or 0 where the packet could not be read; the protocol's IANA number; the flags of TCP. */
	__u8 family;
	__u8 protocol;
	__u8 tcp_flags;
	/* enum outcome, enum mode, enum scheduler */
	__u8 outcome;
	__u8 mode;
	__u8 scheduler;
	/* enum trace_reason, as bits. */
	__u8 reason;
	__u8 pad;
	/* Packets on the wire: the segments of a GSO packet count. */
	__u32 packets;
	/* Length of the frame as received, in bytes, and how many bytes of it, and of the frame as sent, follow the record.
	 * 0 where no capture needs them. */
	__u32 ingress_length;
	__u32 ingress_captured;
	__u32 egress_captured;
	/* The frame as sent, from its Ethernet header on. */
	__u8 head[TRACE_HEAD];
};

/* trace_notes is a record under construction, followed by the frame's bytes for captures. */
struct trace_notes {
	struct trace_record record;
	/* The frame as received, of record.ingress_captured bytes, and behind it the frame as sent, of
	 * record.egress_captured. */
	__u8 frames[2 * CAPTURE_SNAP_MAX];
	/* The captures whose filters may match, a bit for each, and the most bytes of a frame that one of them needs. */
	__u32 candidates;
	__u32 snap;
	/* The captures whose filters and samples match the packet, and CAPTURE_DRAWN; 0 where no samples are drawn yet. */
	__u32 drawn;
	__u32 pad;
	/* How many packets away the next packet of each capture's sample is; 0: not drawn yet. */
	__u64 left[CAPTURES_MAX];
};

/* dry_run says that the packet is only a probe of `jeoul trace`: no state may change, no counter, no turn and no
 * flow. */
static __always_inline bool dry_run(void)
{
	return loaded.dry_run;
}

const enum trace_reason *unused_trace_reason __attribute__((unused));

/* trace_noted holds one packet's notes. A program is not interrupted by
 * itself: each CPU has one packet at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_notes);
} trace_noted SEC(".maps");

/* trace_ring has the records of dry runs; those of real packets have rings of their own (capture.h). */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} trace_ring SEC(".maps");

/* A key that is not on the stack. */
volatile const __u32 trace_zero = 0;

static __always_inline struct trace_notes *trace_current(void)
{
	return bpf_map_lookup_elem(&trace_noted, (const void *)&trace_zero);
}

/* These functions are not inlined: deep in the program, the stack has no room for the registers that their callers
 * would spill. */

static __always_inline bool trace_has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

/* trace_ports reads the ports of the packet as sent. `at` is below the length of an Ethernet header with a tag and the
 * longest IP header. */
static __always_inline void trace_ports(struct trace_record *record, __u32 at, __u8 protocol)
{
	if (!trace_has_ports(protocol) || at > TRACE_HEAD - 4 || record->head_length < at + 4)
		return;
	record->new_source_port = *(__be16 *)(record->head + at);
	record->new_destination_port = *(__be16 *)(record->head + at + 2);
}

/* trace_egress reads the addresses of the packet as sent; its IP header is at `at`, after the type of the frame. */
static __always_inline void trace_egress(struct trace_record *record, const __u32 at)
{
	const __u8 *ip = record->head + at;
	__be16 type = *(__be16 *)(ip - 2);

	if (type == bpf_htons(ETH_P_IP) && record->head_length >= at + 20) {
		record->new_source[0] = *(__be32 *)(ip + 12);
		record->new_destination[0] = *(__be32 *)(ip + 16);
		/* A later fragment has none. */
		if (!(*(__be16 *)(ip + 6) & bpf_htons(0x1fff)))
			trace_ports(record, at + (ip[0] & 15) * 4, ip[9]);
	} else if (type == bpf_htons(ETH_P_IPV6) && record->head_length >= at + 40) {
		__builtin_memcpy(record->new_source, ip + 8, 16);
		__builtin_memcpy(record->new_destination, ip + 24, 16);
		trace_ports(record, at + 40, ip[6]);
	}
}

/* trace_complete fills in the fields that are known at the end. */
static __always_inline void trace_complete(ctx_t *ctx, struct trace_record *record,
					   enum outcome outcome)
{
	__u64 length = ctx_length(ctx);

	record->time = bpf_ktime_get_ns();
	record->interface = loaded.interface;
	record->outcome = outcome;
	record->packets = ctx_packets(ctx);
	/* 0, nothing, becomes TRACE_NONE. */
	record->service--;
	record->slot--;
	record->backend--;
	record->frame_length = length;
	if (length > TRACE_HEAD)
		length = TRACE_HEAD;
	if (length >= ETH_HLEN && !ctx_load(ctx, 0, record->head, length))
		record->head_length = length;
	if (*(__be16 *)(record->head + 12) == bpf_htons(ETH_P_8021Q) ||
	    *(__be16 *)(record->head + 12) == bpf_htons(ETH_P_8021AD))
		trace_egress(record, ETH_HLEN + 4);
	else
		trace_egress(record, ETH_HLEN);
}

#include "capture.h"

/* trace_read notes a packet's addresses, ports and flags, once it is parsed. */
static __noinline void trace_read(ctx_t *ctx, const struct packet *packet)
{
	struct trace_notes *notes;

	notes = trace_current();
	if (!notes)
		return;
	__builtin_memcpy(notes->record.source, packet->source, sizeof(packet->source));
	__builtin_memcpy(notes->record.destination, packet->destination,
			 sizeof(packet->destination));
	notes->record.source_port = packet->source_port;
	notes->record.destination_port = packet->destination_port;
	notes->record.length = packet->length;
	notes->record.family = packet->ipv6 ? 6 : 4;
	notes->record.protocol = packet->protocol;
	notes->record.tcp_flags = packet->tcp_flags;
	if (!dry_run())
		capture_begin(ctx);
}

/* trace_service notes which service takes the packet. Numbers are kept plus 1 until the end, so that zeroed memory
 * means that there is nothing. */
static __noinline void trace_service(const struct service *service)
{
	struct trace_notes *notes;

	notes = trace_current();
	if (!notes)
		return;
	notes->record.service = service->id + 1;
	notes->record.mode = service->mode;
	notes->record.scheduler = service->scheduler;
}

/* trace_slot records which slot of the service's table was looked up: 0 to table_size - 1. */
static __noinline void trace_slot(__u32 slot)
{
	struct trace_notes *notes;

	notes = trace_current();
	if (notes)
		notes->record.slot = slot + 1;
}

/* trace_backend notes which backend takes the packet, or which it came from. */
static __noinline void trace_backend(__u32 index, __u32 generation)
{
	struct trace_notes *notes;

	notes = trace_current();
	if (!notes)
		return;
	notes->record.backend = index + 1;
	notes->record.backend_generation = generation;
}

/* trace_add_reason notes a reason; those noted before stay. */
static __noinline void trace_add_reason(enum trace_reason reason)
{
	struct trace_notes *notes;

	notes = trace_current();
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
