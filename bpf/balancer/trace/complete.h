/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fields of a record that are known when the packet is as sent. */
#pragma once

#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>

#include "notes.h"

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
