/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet's notes: its record under construction, and the frames of captures. Only traced programs include this. */
#pragma once

#include <stdbool.h>

#include <linux/in.h>
#include <bpf/bpf_helpers.h>

#include "../maps.h"

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

/* trace_tuple has the fields of a packet, as received, that identify its flow, and that captures' filters compare.
 * Addresses and ports are in network byte order; an IPv4 address is in the first word. */
struct trace_tuple {
	__be32 source[4];
	__be32 destination[4];
	__be16 source_port;
	__be16 destination_port;
	/* The IP version, 4 or 6, and the protocol's IANA number. */
	__u8 family;
	__u8 protocol;
	__u16 pad;
};

/* trace_record is the outcome of a packet, with the reasons for it. Addresses and ports are in network byte order; an
 * IPv4 address is in the first word. */
struct trace_record {
	/* The time of the verdict, in nanoseconds of the monotonic clock. */
	__u64 time;
	/* All 0 where the packet could not be parsed. */
	struct trace_tuple received;
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
	/* The flags of TCP. */
	__u8 tcp_flags;
	/* enum outcome, enum mode, enum scheduler */
	__u8 outcome;
	__u8 mode;
	__u8 scheduler;
	/* enum trace_reason, as bits. */
	__u8 reason;
	__u8 pad[3];
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

/* trace_noted holds one packet's notes. A program is not interrupted by
 * itself: each CPU has one packet at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_notes);
} trace_noted SEC(".maps");

/* trace_ring has the records of dry runs; those of real packets have rings of their own (capture/maps.h). */
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

static __always_inline bool trace_has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}
