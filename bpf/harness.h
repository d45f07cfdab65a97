/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a packet costs, measured through BPF_PROG_TEST_RUN. Repeating one
 * buffer is not enough: a program would see its own output, and one flow
 * flatters every cache. So each run restores the packet, gives it the next
 * flow, and tail-calls the program under test, unmodified. The same with an
 * empty program is the baseline.
 *
 * Include after one of the ctx_*.h headers. */
#pragma once

#include <stdbool.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>

/* Bytes at the front of the packet that are restored: whatever a program may
 * rewrite. The Ethernet header, and then a multiple of 8. */
#define RESTORED (ETH_HLEN + 80)

struct harness {
	/* The packet as it should be at the start of each run. */
	__u8 packet[RESTORED];
	/* The flow that comes next. */
	__u32 next;
	/* Number of flows minus 1; the number is a power of two. */
	__u32 mask;
	/* Where the last four bytes of the client's address and its port are. */
	__u32 address_at;
	__u32 port_at;
	/* Those four bytes of the first flow, in host byte order. */
	__u32 address;
	/* Flows follow each other in an order without locality, unless 0. */
	__u32 stride;
};

struct harness harness;

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} under_test SEC(".maps");

/* restore writes in pieces of which none ends inside a field: a load that spans
 * two stores just made has to wait for both, which no packet from a device
 * would make a program do. */
static __always_inline void restore(void *to, const void *from)
{
	*(__u64 *)to = *(__u64 *)from;
	*(__u32 *)(to + 8) = *(__u32 *)(from + 8);
	*(__u16 *)(to + 12) = *(__u16 *)(from + 12);
#pragma unroll
	for (int i = ETH_HLEN; i < RESTORED; i += 8)
		*(__u64 *)(to + i) = *(__u64 *)(from + i);
}

/* next_packet writes the packet of the next flow: the low 16 bits of its
 * number vary the client's address, the others its port. */
static __always_inline bool next_packet(ctx_t *ctx)
{
	void *data = ctx_data(ctx), *data_end = ctx_data_end(ctx);
	__u32 flow = (harness.next++ * harness.stride) & harness.mask;
	__be32 *address = data + (harness.address_at & 63);
	__be16 *port = data + (harness.port_at & 63);

	if (data + RESTORED > data_end)
		return false;
	restore(data, harness.packet);
	if (address + 1 > (__be32 *)data_end || port + 1 > (__be16 *)data_end)
		return false;
	*address = bpf_htonl(harness.address + (flow & 0xffff));
	*port = bpf_htons(1024 + (flow >> 16));
	return true;
}

/* swap_macs is the least that a balancer on layer 2 must do. */
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
