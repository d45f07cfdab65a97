/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fails open: leaves packets for VIPs to the kernel when the control plane has been away for too long, or another
 * balancer holds the VIPs. Without a control plane nobody checks the backends, and sending to dead ones for ever would
 * be worse than not balancing: orphan.bpf.c decides when it has been away for too long. The control plane itself says
 * when another balancer holds the VIPs: a backup that went on balancing would hide that clients have not learnt of the
 * change, until it is switched off. Include after one of the ctx_*.h headers. */
#pragma once

#include "balance.h"

/* fails_open says whether packets for VIPs are left to the kernel. It costs each packet a load from a cache line that
 * is written a few times a second, and a branch. */
static __always_inline bool fails_open(void *generation)
{
	return __builtin_expect(*(const __u32 *)(const void *)&head_of(generation)->orphaned != 0, 0);
}

/* fail_open leaves a packet for a VIP to the kernel, as if there were no program: its sender is
 * refused at once, and looks elsewhere. Backends' replies still get their VIP, or clients would
 * see where they come from: OUTCOME_NONE. Scratch: leaves packet. */
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
