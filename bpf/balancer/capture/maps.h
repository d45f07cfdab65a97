/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The slots of captures: their filters, their counters and their rings. */
#pragma once

#include "../trace/notes.h"

/* capture_filter has the conditions of a capture, all of which must hold. Addresses and ports are in network byte
 * order; an IPv4 address is in the first word. */
struct capture_filter {
	/* 0: the slot is free. Written last, and cleared first. */
	__u32 id;
	/* One packet in so many, at random; 0 is the same as 1. */
	__u32 sample;
	/* No packet is taken after this time of the monotonic clock, in nanoseconds: the process that
	 * would end the capture may be gone. */
	__u64 until;
	/* A bit for each enum outcome. */
	__u64 outcomes;
	/* The capture takes so many packets, and bytes of frames; 0: no bound. */
	__u64 most_packets;
	__u64 most_bytes;
	/* The client's address has these bits, and the VIP these, as the client sees the packet: of a
	 * reply, source and destination change places. */
	__be32 client[4];
	__be32 client_mask[4];
	__be32 vip[4];
	__be32 vip_mask[4];
	/* Of packets with ports, those with these; 0 matches any. */
	__be16 client_port;
	__be16 vip_port;
	/* An IANA number, and 4 or 6; 0 matches any. */
	__u8 protocol;
	__u8 family;
	/* Only packets of the service with one of these ids plus 1 (its hairpin has one, too), and
	 * those of its backends (capture_backends). */
	__u8 by_service;
	/* Only packets of those backends. */
	__u8 by_backend;
	__u32 services[2];
	/* The interface that packets come in on; 0: any. */
	__u32 interface;
	/* Bytes of a frame that are copied, 0 to CAPTURE_SNAP_MAX. */
	__u32 snap;
	/* Packets that are taken in a window of 2^CAPTURE_WINDOW ns; 0: no bound. */
	__u32 rate;
	/* The address and port of the service that the filter names; port 0: it names none. */
	__be16 service_port;
	__u16 pad;
	__be32 service_vip[4];
};

/* capture_gate has the bits of a plain packet's fields that all filters for an address family want: a packet that
 * differs in one of them matches none of the filters. Most packets beside a capture pay for this comparison only. */
struct capture_gate {
	/* The client's address, the VIP, the client's port and the service's as in the packet's header, and the protocol,
	 * each where its mask has bits. */
	__be32 client[4];
	__be32 client_mask[4];
	__be32 vip[4];
	__be32 vip_mask[4];
	__be32 ports;
	__be32 ports_mask;
	__u32 protocol;
	__u32 protocol_mask;
	/* The slot plus 1 of the only filter, if that matches each packet that passes on its way to the VIP; else 0. */
	__u32 only;
	/* 0: no filter is for the family. */
	__u32 open;
};

struct capture_slots {
	/* Slots from here on are free. */
	__u32 used;
	/* The row of gates that packets are compared with. The other one is written in the meantime. */
	__u32 gate;
	/* The gates for IPv4 and IPv6. */
	struct capture_gate gates[2][2];
	struct capture_filter slots[CAPTURES_MAX];
};

/* capture_state counts the packets that a capture's filter matched. Packets are records here: a GSO packet is one. */
struct capture_state {
	/* Packets that matched, and of these: that were taken, that were more than the rate allows, that
	 * found no room in the ring, and that were beyond the bound of packets or bytes. */
	__u64 matched;
	__u64 taken;
	__u64 limited;
	__u64 lost;
	__u64 beyond;
	/* Bytes of frames that were taken. */
	__u64 bytes;
	/* The window of time, and the packets in it. */
	__u64 window;
	__u64 in_window;
};

const enum capture_limit *unused_capture_limit __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_slots);
} capture_filters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CAPTURES_MAX);
	__type(key, __u32);
	__type(value, struct capture_state);
} capture_states SEC(".maps");

struct capture_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

/* capture_rings are the slots' rings. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, CAPTURES_MAX);
	__type(key, __u32);
	__array(values, struct capture_ring);
} capture_rings SEC(".maps");

/* capture_backends maps a backend's index to the slots, a bit for each, whose captures match its packets. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 17);
	__type(key, __u32);
	__type(value, __u32);
} capture_backends SEC(".maps");

/* capture_plain has the plain program of the interface. It is empty in a dispatcher's program, and is emptied when the
 * process ends whose map it is: the traced program then decides on all packets. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} capture_plain SEC(".maps");

static __always_inline struct capture_slots *capture_all(void)
{
	return bpf_map_lookup_elem(&capture_filters, (const void *)&trace_zero);
}
