/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fail open: packets for VIPs are passed to the kernel when the control plane has been down for longer than a timeout
 * (orphan.bpf.c), or another balancer holds the VIPs (the control plane sets that). Without a control plane there are
 * no health checks, and forwarding to dead backends without end would be worse than not balancing. A backup that went
 * on balancing would hide, until it is switched off, that neighbours still send to it. Include after one of the ctx_*.h
 * headers. */
#pragma once

#include "balance.h"

/* fails_open reports whether packets for VIPs are passed to the kernel. It costs each packet a load from a cache line
 * that is written a few times a second, and a branch. */
static __always_inline bool fails_open(void *generation)
{
	return __builtin_expect(*(const __u32 *)(const void *)&head_of(generation)->orphaned != 0, 0);
}

/* fail_open passes a packet for a VIP to the kernel, as if no program were attached: the kernel refuses the connection
 * at once, and the client can retry elsewhere. Backends' replies are still translated to the VIP, without which clients
 * would see the backends' addresses: OUTCOME_NONE. Scratch: writes packet. */
__noinline int fail_open(ctx_t *ctx)
{
	struct scratch *scratch = get_scratch();
	__u32 tag;
	__be16 type;

	if (!scratch || (!readable(ctx) && ctx_linear(ctx, HEADERS_MAX)))
		return OUTCOME_NONE;
	if (parse_ethernet(ctx_data(ctx), ctx_data_end(ctx), loaded.mac, CTX_TAGS, &type, &tag) !=
	    OUTCOME_NONE)
		return OUTCOME_NONE;
	if (read_packet(ctx, network_at(tag), type == bpf_htons(ETH_P_IPV6)) != OUTCOME_NONE)
		return OUTCOME_NONE;
	if (kind_of(&scratch->packet) != KIND_VIP)
		return OUTCOME_NONE;
	return head_of(current_generation())->orphaned ? OUTCOME_PASSED_ORPHANED :
							  OUTCOME_PASSED_BACKUP;
}
