/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Measures the cost of a packet through BPF_PROG_TEST_RUN. Repeating one buffer is not enough: a program would see its
 * own output, and one flow flatters every cache. So each run restores the packet, gives it the next flow, and
 * tail-calls the program under test, unmodified. The same with an empty program is the baseline.
 *
 * Include after one of the ctx_*.h headers, and after these two, which depend
 * on the hook:
 *   long move_start(ctx, by, type)  takes so many bytes from the front of a
 *                                   packet that shall have this EtherType then,
 *                                   or adds them where `by` is negative
 *   bool prepare(ctx, tag)          sets what is beside the packet's bytes */
#pragma once

#include <stdbool.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>

/* Bytes at the front of the packet that are restored: whatever a program may
 * rewrite. The Ethernet header, and then a multiple of 8. */
#define RESTORED (ETH_HLEN + 80)

/* Bytes that adjust_* makes a packet longer by: an IPv4 header. */
#define GROWTH 20

/* varied is a field that is not the same in every flow. It is written with the rest of the 8 bytes that restore writes
 * at once, in one store: a load that spans two recent stores has to wait for both, which does not happen with a packet
 * from a device. */
struct varied {
	/* The other bytes of the piece, and 0 for the field. */
	__u64 rest;
	/* Where the piece begins in the packet. */
	__u32 at;
	/* Where the field begins in the piece, in bits. */
	__u32 shift;
};

struct harness {
	/* The packet as it should be at the start of each run. */
	__u8 packet[RESTORED];
	/* EtherType of the IP packet. */
	__be16 type;
	/* The frame's length in bytes. */
	__u32 length;
	/* VLAN of a tag that is not among the packet's bytes; 0 for none. */
	__u32 tag;
	/* The flow that comes next. */
	__u32 next;
	/* Number of flows minus 1; the number is a power of two. */
	__u32 mask;
	/* Flows follow each other in an order without locality. */
	__u32 stride;
	/* An offset of the flows' numbers, for others than those from 0 on. */
	__u32 offset;
	/* How many low bits of a flow's number vary the client's address; the others
	 * vary its port. */
	__u32 address_bits;
	/* Where the recorded flows begin. */
	__u32 base;
	/* The last four bytes of the client's address in the first flow, in host
	 * byte order. */
	__u32 first;
	/* Those four bytes, and the client's port. */
	struct varied address;
	struct varied port;
	/* All ones where both are in the same piece, else 0. */
	__u64 together;
};

struct harness harness;

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} under_test SEC(".maps");

/* How many pieces of a packet a recorded flow may have of its own. */
#define PIECES 3

/* recorded is a flow with arbitrary addresses and ports. record_* stores a packet as a program has sent it; replay_*
 * writes the pieces of a flow into a packet. */
struct recorded {
	__u64 piece[PIECES];
	/* As the program has sent them: the last four bytes of each address. */
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 destination_port;
	/* The last four bytes of the frame's destination. */
	__be32 to;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct recorded);
} recordings SEC(".maps");

/* layout says where a recorded flow is in its packets. */
struct layout {
	/* Where each piece begins. */
	__u32 piece[PIECES];
	/* Where the last four bytes of the addresses are, and the ports. */
	__u32 source;
	__u32 destination;
	__u32 ports;
};

struct layout layout;

/* within returns a pointer to `size` bytes of the packet; NULL if the packet is shorter. */
static __always_inline void *within(ctx_t *ctx, void *data, __u32 at, __u32 size)
{
	data += at & 63;
	return data + size <= ctx_data_end(ctx) ? data : NULL;
}

/* restore copies in pieces that end at the boundaries of fields. */
static __always_inline void restore(void *to, const void *from)
{
	*(__u64 *)to = *(__u64 *)from;
	*(__u32 *)(to + 8) = *(__u32 *)(from + 8);
	*(__u16 *)(to + 12) = *(__u16 *)(from + 12);
#pragma unroll
	for (int i = ETH_HLEN; i < RESTORED; i += 8)
		*(__u64 *)(to + i) = *(__u64 *)(from + i);
}

/* restored restores a packet that a program has rewritten, or whose start it has moved; NULL if that fails. */
static __always_inline void *restored(ctx_t *ctx)
{
	/* No call, as ctx_length is in XDP: the buffer is linear here. */
	__u64 length = ctx_data_end(ctx) - ctx_data(ctx);
	void *data;

	/* To the compiler, pointers are 32 bits in a context. */
	barrier_var(length);
	if (length != harness.length &&
	    move_start(ctx, (int)length - (int)harness.length, harness.type))
		return NULL;
	if (!prepare(ctx, harness.tag))
		return NULL;
	data = ctx_data(ctx);
	if (data + RESTORED > ctx_data_end(ctx))
		return NULL;
	restore(data, harness.packet);
	return data;
}

/* next_packet writes the packet of the next flow. */
static __always_inline bool next_packet(ctx_t *ctx)
{
	__u32 flow = ((harness.next++ * harness.stride) & harness.mask) + harness.offset;
	__u32 bits = harness.address_bits & 31;
	void *data = restored(ctx);
	__u64 *address, *port, client;

	if (!data)
		return false;
	address = within(ctx, data, harness.address.at, sizeof(*address));
	port = within(ctx, data, harness.port.at, sizeof(*port));
	if (!address || !port)
		return false;
	client = harness.address.rest |
		 (__u64)bpf_htonl(harness.first + (flow & ((1U << bits) - 1))) << (harness.address.shift & 63);
	*address = client;
	*port = harness.port.rest | (client & harness.together) |
		(__u64)bpf_htons(1024 + (flow >> bits)) << (harness.port.shift & 63);
	return true;
}

/* record stores the packet of the last flow as the program has sent it. */
static __always_inline bool record(ctx_t *ctx)
{
	void *data = ctx_data(ctx);
	__be32 *source = within(ctx, data, layout.source, sizeof(*source));
	__be32 *destination = within(ctx, data, layout.destination, sizeof(*destination));
	__be16 *ports = within(ctx, data, layout.ports, 2 * sizeof(*ports));
	__be32 *to = within(ctx, data, 2, sizeof(*to));
	__u32 before = harness.base + harness.next - 1;
	struct recorded *flow = bpf_map_lookup_elem(&recordings, &before);

	if (!source || !destination || !ports || !to)
		return false;
	/* Before the first flow there is none to record. */
	if (flow && harness.next) {
		flow->source = *source;
		flow->destination = *destination;
		flow->source_port = ports[0];
		flow->destination_port = ports[1];
		flow->to = *to;
	}
	return next_packet(ctx);
}

/* replay writes the packet of the next recorded flow. */
static __always_inline bool replay(ctx_t *ctx)
{
	__u32 next = harness.base + (harness.next++ & harness.mask);
	struct recorded *flow = bpf_map_lookup_elem(&recordings, &next);
	void *data = restored(ctx);

	if (!flow || !data)
		return false;
#pragma unroll
	for (int i = 0; i < PIECES; i++) {
		__u64 *piece = within(ctx, data, layout.piece[i], sizeof(*piece));

		if (!piece)
			return false;
		*piece = flow->piece[i];
	}
	return true;
}

/* line is as much memory as a flow's entry has. */
struct line {
	__u64 word[8];
};

/* As many as there are flows at most. */
#define LINES (1 << 20)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LINES);
	__type(key, __u32);
	__type(value, struct line);
} lines SEC(".maps");

/* The sum of the words read so far, which is always 0. */
__u64 read;

/* read_line reads a line somewhere, another for each flow. Its address depends on the content of the previous line, so
 * that the reads cannot overlap: each takes a memory access's latency. A program that tracks flows waits for one such
 * line, at the least. */
static __always_inline bool read_line(void)
{
	__u64 flow = (((harness.next - 1) * harness.stride) & harness.mask) + read;
	__u32 at = (flow * 0x9e3779b97f4a7c15ULL) >> 40 & (LINES - 1);
	struct line *line = bpf_map_lookup_elem(&lines, &at);

	if (!line)
		return false;
	read += *(volatile __u64 *)line->word;
	return true;
}

/* swap_macs is the minimal work of a balancer on layer 2. */
static __always_inline bool swap_macs(ctx_t *ctx)
{
	struct ethhdr *eth = ctx_data(ctx);
	__u8 mac[ETH_ALEN];

	if ((void *)(eth + 1) > ctx_data_end(ctx))
		return false;
	__builtin_memcpy(mac, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, mac, ETH_ALEN);
	return true;
}
