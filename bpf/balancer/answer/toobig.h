/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Path MTU discovery: ICMP "fragmentation needed" (RFC 1191 section 4) and ICMPv6 "packet too big" (RFC 4443 section
 * 3.2). */
#pragma once

#include "icmperror.h"

/* answer_too_big answers a packet with the ICMP error that reports the path MTU. Scratch: reads packet and mtu. */
static __always_inline enum outcome answer_too_big(ctx_t *ctx)
{
	struct scratch *scratch = get_scratch();
	__u32 kind = ICMP_ERROR(ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED), rest;

	if (!scratch)
		return OUTCOME_DROPPED_TOO_BIG;
	rest = scratch->mtu & 0xffff;
	if (scratch->packet.ipv6) {
		kind = ICMP_ERROR(ICMPV6_PKT_TOOBIG, 0);
		rest = scratch->mtu;
	}
	return answer_icmp(ctx, kind, rest) ? OUTCOME_ANSWERED_TOO_BIG : OUTCOME_DROPPED_TOO_BIG;
}

/* too_big_for requests that answer, which is made as the last step. Scratch: writes mtu. */
static __always_inline enum outcome too_big_for(__u32 mtu)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return OUTCOME_DROPPED_TOO_BIG;
	scratch->mtu = mtu;
	return OUTCOME_TOO_BIG;
}
