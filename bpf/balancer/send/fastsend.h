/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sending on the fast paths: with the backend's MAC address and at most its address and port, on the link that the
 * packet came in on. forward.h does everything else. */
#pragma once

#include "forward.h"
#include "../count.h"

/* can_send_fast reports whether a service's packets need only the address of a backend, and do not grow. */
static __always_inline bool can_send_fast(const struct service *service)
{
	if (service->mss)
		return false;
	return service->mode == MODE_L2DSR ||
	       (has_mode(MODE_DSCP) && service->mode == MODE_DSCP) ||
	       (has_mode(MODE_NAT) && service->mode == MODE_NAT);
}

/* translate_fast rewrites a packet's destination to the backend; OUTCOME_NONE, with nothing written, if its sender is
 * to get an ICMP error. A partly written packet is dropped. */
static __always_inline enum outcome translate_fast(ctx_t *ctx, const struct packet *packet,
						   const struct decision *decision,
						   void *frame, bool ipv6)
{
	struct translation to;

	if (!has_ttl(frame + packet->network, ipv6) || too_big(ctx, packet, decision, 0))
		return OUTCOME_NONE;
	/* Before the checksum helper is called, after which pointers into the frame are invalid. */
	copy_macs(frame, decision->backend);
	identity_translation(packet, &to);
	set_destination(decision, &to);
	return translate_as(ctx, packet, &to, ipv6) == OUTCOME_NONE ? OUTCOME_FORWARDED :
								      OUTCOME_DROPPED_MALFORMED;
}

/* send_on_link sends a plain packet of a service that can_send_fast() to a backend on the link that the packet came in
 * on, and counts it: OUTCOME_NONE, with nothing written, if the packet needs the slow path. `frame` is the start of the
 * packet, whose IP header is readable. `dscp` is a constant: without it, there is no code for mode dscp. */
static __always_inline enum outcome send_on_link(ctx_t *ctx, const struct packet *packet,
						 const struct decision *decision, void *frame,
						 bool ipv6, bool dscp)
{
	enum outcome outcome = OUTCOME_FORWARDED;

	if (decision->mode == MODE_L2DSR)
		copy_macs(frame, decision->backend);
	else if ((dscp && has_mode(MODE_DSCP)) ||
		 (has_mode(MODE_NAT) && decision->mode == MODE_NAT))
		outcome = translate_fast(ctx, packet, decision, frame, ipv6);
	else
		return OUTCOME_NONE;
	if (outcome == OUTCOME_FORWARDED)
		count_backend(packet, decision, ctx_packets(ctx));
	return outcome;
}

/* send_fast is send_on_link() for a backend on any link. */
static __always_inline enum outcome send_fast(ctx_t *ctx, const struct packet *packet,
					      const struct decision *decision, void *frame,
					      bool ipv6, __u32 *egress)
{
	if (!is_other_interface(decision->backend->interface))
		return send_on_link(ctx, packet, decision, frame, ipv6, true);
	if (decision->mode != MODE_L2DSR)
		return OUTCOME_NONE;
	*egress = decision->backend->interface;
	if (rewrite_macs(ctx, packet, decision->backend, *egress))
		return OUTCOME_DROPPED_NO_ROOM;
	count_backend(packet, decision, ctx_packets(ctx));
	return OUTCOME_FORWARDED;
}
