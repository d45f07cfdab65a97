/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The shortest way of a packet, for the hook where it pays (CTX_HASTENS). Include after
 * one of the ctx_*.h headers. */
#pragma once

#include "count.h"
#include "link.h"
#include "readable.h"
#include "select.h"

/* is_common says whether a service's packets need nothing but the address of a
 * backend, and no room. */
static __always_inline bool is_common(const struct service *service)
{
	if (service->mss)
		return false;
	return service->mode == MODE_L2DSR ||
	       (has_mode(MODE_DSCP) && service->mode == MODE_DSCP) ||
	       (has_mode(MODE_NAT) && service->mode == MODE_NAT);
}

/* hasten sends a packet on by a way that is so short that the compiler has registers for
 * all of it: plain, of a flow that nobody remembers, and for a service that readdresses the
 * frame and nothing else. What it cannot tell at a glance it leaves as it is, for
 * balance(), which also knows why. */
static __always_inline bool hasten(ctx_t *ctx, void *generation, bool ipv6)
{
	void *data = ctx_data(ctx), *data_end = ctx_data_end(ctx);
	void *header = data + sizeof(struct ethhdr);
	struct packet packet = {
		.network = sizeof(struct ethhdr),
	};
	struct decision decision = {};
	struct service *service;
	enum outcome outcome;

	if (!(ipv6 ? is_plain6(header, data_end) : is_plain4(header, data_end)))
		return false;
	outcome = ipv6 ? parse_plain6(&packet, header, data_end) :
			 parse_plain4(&packet, header, data_end);
	if (outcome != OUTCOME_NONE || !has_ports(&packet) || packet.fragment || !whole(ctx, &packet))
		return false;
	service = find_service(generation, &packet, packet.destination_port, packet.protocol);
	if (!service || service->mode != MODE_L2DSR || !is_common(service) ||
	    (service->flags & SERVICE_ASKS) || !service->table_size)
		return false;
	decide_by(service, &packet, &decision);
	if (!choose_by_hash(generation, &packet, &decision) || !decision.backend ||
	    leaves(decision.backend->interface))
		return false;
	copy_macs(data, decision.backend);
	count_backend(&packet, &decision, ctx_packets(ctx));
	return true;
}

/* hastened says whether hasten has sent a packet on. Traced programs decide by balance(),
 * which says why. */
static __always_inline bool hastened(ctx_t *ctx, void *generation)
{
#if CTX_HASTENS && !defined(TRACED)
	__be16 type;
	__u32 tag;

	if (!has_mode(MODE_L2DSR) || !generation ||
	    parse_ethernet(ctx_data(ctx), ctx_data_end(ctx), loaded.mac, false, &type,
			   &tag) != OUTCOME_NONE)
		return false;
	return type == bpf_htons(ETH_P_IP) ? hasten(ctx, generation, false) :
					     hasten(ctx, generation, true);
#else
	return false;
#endif
}
