/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of answers to health checks, and the ports in its keys for echo requests and replies. Include after one of
 * the ctx_*.h headers. */
#pragma once

#include <bpf/bpf_helpers.h>

#include "types.h"
#include "../parse.h"

/* RFC 792 and RFC 4443; the kernel's header <linux/icmp.h> is not for eBPF. */
#define ECHO_REQUEST4 8
#define ECHO_REPLY4 0
#define ECHO_REQUEST6 128
#define ECHO_REPLY6 129
#define ECHO_HEADER 8

const enum check_agreement *unused_check_agreement __attribute__((unused));
const struct check_target *unused_check_target __attribute__((unused));

/* check_answers is written by jeoul_check. The control plane replaces this map by one of the right size; an entry that
 * was evicted is written again with the next packet of its check. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 15);
	__type(key, struct check_key);
	__type(value, struct check_answer);
} check_answers SEC(".maps");

/* echo_id_as_ports sets both of the packet's ports to the identifier of an echo request or reply; false for other
 * packets. Types are those of ICMP and of ICMPv6. */
static __always_inline bool echo_id_as_ports(ctx_t *ctx, struct packet *packet, __u8 type4, __u8 type6)
{
	__u8 *header = ctx_data(ctx) + (packet->network & 0xff) +
		       (packet->transport & OFFSET_MASK);

	if (packet->protocol != (packet->ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP) ||
	    (void *)(header + ECHO_HEADER) > ctx_data_end(ctx) ||
	    *header != (packet->ipv6 ? type6 : type4))
		return false;
	packet->source_port = packet->destination_port = *(__be16 *)(header + 4);
	return true;
}
