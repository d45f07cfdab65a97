/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sending on the fast paths: with the backend's MAC address and at most its address and port, by the link that the
 * packet came in on. Everything else is forward.h's. */
#pragma once

#include "forward.h"
#include "../count.h"

/* sends_plainly says whether a service's packets need nothing but the address of a backend, and do not grow. */
static __always_inline bool sends_plainly(const struct service *service)
{
	if (service->mss)
		return false;
	return service->mode == MODE_L2DSR ||
	       (has_mode(MODE_DSCP) && service->mode == MODE_DSCP) ||
	       (has_mode(MODE_NAT) && service->mode == MODE_NAT);
}

/* translate_plainly makes the backend the destination of a packet; OUTCOME_NONE, and nothing is written, where its
 * sender is to get an ICMP error. Half written, it is no packet of any service, and is dropped. */
static __always_inline enum outcome translate_plainly(ctx_t *ctx, const struct packet *packet,
						      const struct decision *decision,
						      void *frame, bool ipv6)
{
	struct translation to;

	if (!has_hops(frame + packet->network, ipv6) || too_big(ctx, packet, decision, 0))
		return OUTCOME_NONE;
	/* Before the kernel is asked for the checksum, after which the frame may be elsewhere. */
	copy_macs(frame, decision->backend);
	unchanged(packet, &to);
	aim(decision, &to);
	return translate_as(ctx, packet, &to, ipv6) == OUTCOME_NONE ? OUTCOME_FORWARDED :
								      OUTCOME_DROPPED_MALFORMED;
}

/* send_here sends a plain packet of a service that sends_plainly() to a backend on the link that the packet came in on,
 * and counts it: OUTCOME_NONE, and nothing is written, where it needs more. `frame` is where the packet begins, of
 * which an IP header has been read. Without `marks`, which is a constant, it has no code for mode dscp, and is
 * shorter. */
static __always_inline enum outcome send_here(ctx_t *ctx, const struct packet *packet,
					      const struct decision *decision, void *frame,
					      bool ipv6, bool marks)
{
	enum outcome outcome = OUTCOME_FORWARDED;

	if (decision->mode == MODE_L2DSR)
		copy_macs(frame, decision->backend);
	else if ((marks && has_mode(MODE_DSCP)) ||
		 (has_mode(MODE_NAT) && decision->mode == MODE_NAT))
		outcome = translate_plainly(ctx, packet, decision, frame, ipv6);
	else
		return OUTCOME_NONE;
	if (outcome == OUTCOME_FORWARDED)
		count_backend(packet, decision, ctx_packets(ctx));
	return outcome;
}

/* send_plainly is the same for a backend on any link. */
static __always_inline enum outcome send_plainly(ctx_t *ctx, const struct packet *packet,
						 const struct decision *decision, void *frame,
						 bool ipv6, __u32 *egress)
{
	if (!leaves(decision->backend->interface))
		return send_here(ctx, packet, decision, frame, ipv6, true);
	if (decision->mode != MODE_L2DSR)
		return OUTCOME_NONE;
	*egress = decision->backend->interface;
	if (readdress(ctx, packet, decision->backend, *egress))
		return OUTCOME_DROPPED_NO_ROOM;
	count_backend(packet, decision, ctx_packets(ctx));
	return OUTCOME_FORWARDED;
}
