/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rejects packets that cannot be forwarded: drops them, or answers like a host on whose port nothing listens. */
#pragma once

#include "reset.h"
#include "../maps.h"
#include "../readable.h"

#define SAME_ORDER(reason)                                                                  \
	_Static_assert(OUTCOME_RESET_##reason - OUTCOME_RESET_NO_BACKEND ==                     \
				       OUTCOME_DROPPED_##reason - OUTCOME_DROPPED_NO_BACKEND && \
			       OUTCOME_UNREACHABLE_##reason - OUTCOME_UNREACHABLE_NO_BACKEND == \
				       OUTCOME_DROPPED_##reason - OUTCOME_DROPPED_NO_BACKEND,   \
		       "the answers are in another order")
SAME_ORDER(BACKEND_DOWN);
SAME_ORDER(NO_FLOW);
SAME_ORDER(NO_PORT);
SAME_ORDER(NO_ADDRESS);
SAME_ORDER(FLOW_TABLE_FULL);
SAME_ORDER(RATE_LIMIT);
SAME_ORDER(CONNECTION_LIMIT);
_Static_assert(OUTCOME_DROPPED_CONNECTION_LIMIT + 1 == OUTCOME_COUNT, "refusals are the last");

/* is_rejectable reports whether a packet with this outcome may be answered by a rejection. */
static __always_inline bool is_rejectable(enum outcome outcome)
{
	return outcome >= OUTCOME_DROPPED_NO_BACKEND && outcome < OUTCOME_COUNT;
}

/* answer_unreachable answers a packet with "port unreachable" (RFC 1122 section 3.2.2.1, RFC 4443 section 3.1).
 * Scratch: reads packet. */
static __always_inline bool answer_unreachable(ctx_t *ctx, const struct packet *packet)
{
	return answer_icmp(ctx,
			   packet->ipv6 ? ICMP_ERROR(ICMPV6_DEST_UNREACH, ICMPV6_PORT_UNREACH) :
					  ICMP_ERROR(ICMP_DEST_UNREACH, ICMP_PORT_UNREACH),
			   0);
}

/* rejects reports whether a packet that cannot be forwarded is answered: by the service's setting, or, if a backend
 * sent it to the pool of full NAT, by the setting of the services of that mode. */
static __always_inline bool rejects(const struct service *service, __u32 outcome)
{
	const struct head *head = current_generation();

	if (!service)
		return head->pool_answers;
	return (service->flags & SERVICE_ANSWERS) ||
	       ((service->flags & SERVICE_RESETS) && outcome == OUTCOME_DROPPED_BACKEND_DOWN);
}

/* reject answers a packet, if that is configured and possible, and returns the outcome: `outcome` if the packet is
 * dropped. Fragments are not answered, because the length of their segment is unknown; ICMP errors must not be (RFC
 * 1122 section 3.2.2). Scratch: reads packet. */
__noinline int reject(ctx_t *ctx, const struct service *service, __u32 outcome)
{
	struct scratch *scratch = get_scratch();
	const struct packet *packet;
	__u32 reason = outcome - OUTCOME_DROPPED_NO_BACKEND;

	if (!scratch)
		return OUTCOME_DROPPED_NO_BACKEND;
	packet = &scratch->packet;
	if (reason >= OUTCOME_COUNT - OUTCOME_DROPPED_NO_BACKEND)
		return OUTCOME_DROPPED_NO_BACKEND;
	if (packet->fragment || !has_ports(packet) || !is_complete(ctx, packet) ||
	    !rejects(service, outcome))
		return outcome;
	if (packet->protocol == IPPROTO_TCP)
		return answer_reset(ctx) ? OUTCOME_RESET_NO_BACKEND + reason : outcome;
	return answer_unreachable(ctx, packet) ? OUTCOME_UNREACHABLE_NO_BACKEND + reason : outcome;
}
