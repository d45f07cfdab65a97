/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The shortest path of a packet, for the hook where that is faster (CTX_SHORTCUT). Include after one of the ctx_*.h
 * headers. */
#pragma once

#include "count.h"
#include "readable.h"
#include "select/clients.h"
#include "select/hairpin.h"
#include "select/fastpath.h"
#include "send/fastsend.h"
#include "send/fastreply.h"
#include "link.h"

#if CTX_SHORTCUT

/* The modes whose packets can take the shortcut. */
#define SHORTCUT_MODES (1U << MODE_L2DSR | 1U << MODE_NAT | 1U << MODE_FULLNAT)

/* shortcut_by sends a packet to the selected backend, if there is one. */
static __always_inline enum outcome shortcut_by(ctx_t *ctx, const struct packet *packet, bool ipv6,
					      const struct decision *decision, void *frame)
{
	if (!decision->backend || is_other_interface(decision->backend->interface))
		return OUTCOME_NONE;
	return send_on_link(ctx, packet, decision, frame, ipv6, false);
}

/* shortcut_known sends a packet of a proven flow in midstream. */
static __always_inline enum outcome shortcut_known(ctx_t *ctx, void *generation,
						 const struct packet *packet, bool ipv6,
						 struct decision *decision, void *frame)
{
	const struct flow *flow = NULL;

	if (!(decision->service->flags & SERVICE_TRACKED) || changes_flow(packet))
		return OUTCOME_NONE;
	decision->backend = proven_backend(generation, decision->service, packet, ipv6, &flow);
	if (decision->backend && sends_midstream(decision, flow))
		return send_from_pool(ctx, flow, decision->backend,
				      midstream_at(sizeof(struct ethhdr), ipv6));
	return shortcut_by(ctx, packet, ipv6, decision, frame);
}

/* has_shortcut reports whether packets of a service can take the shortest path. */
static __always_inline bool has_shortcut(const struct service *service)
{
	if (service->mode == MODE_L2DSR || (has_mode(MODE_NAT) && service->mode == MODE_NAT))
		return !service->mss;
	/* Full NAT takes it in midstream only, after the MSS of the SYN was clamped. */
	return has_mode(MODE_FULLNAT) && service->mode == MODE_FULLNAT;
}

/* shortcut sends a packet by a path that is short enough for the compiler to spill no registers: a plain packet, of a
 * flow without an entry, or of a proven one in midstream, for a service that rewrites only its addresses, or such a
 * service's reply. Each of the two selections has its own copy of the sending code: shared code would keep both
 * selections in registers. Any other packet is left unchanged to balance(), which also records the reasons:
 * OUTCOME_NONE. */
static __always_inline enum outcome shortcut(ctx_t *ctx, void *generation, bool ipv6,
					   __u32 *egress)
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
		return OUTCOME_NONE;
	outcome = ipv6 ? parse_plain6(&packet, header, data_end) :
			 parse_plain4(&packet, header, data_end);
	if (outcome != OUTCOME_NONE || !has_ports(&packet) || packet.fragment || !is_complete(ctx, &packet))
		return OUTCOME_NONE;
	service = find_service(generation, &packet, packet.destination_port, packet.protocol);
	if (!service)
		return reply_on_fast_path(ctx, generation, &packet, ipv6, egress);
	if (!has_shortcut(service) || !service->table_size || needs_client_check(service, &packet, ipv6))
		return OUTCOME_NONE;
	init_decision(service, &packet, &decision);
	/* The branch is unlikely, so that registers are allocated for the code after it: a flow lookup needs many anyway.
	 * */
	if (__builtin_expect(service->flags & SERVICE_NEEDS_LOOKUP, 0))
		return shortcut_known(ctx, generation, &packet, ipv6, &decision, data);
	if (!select_by_hash(generation, &packet, &decision))
		return OUTCOME_NONE;
	return shortcut_by(ctx, &packet, ipv6, &decision, data);
}

#endif

/* try_shortcut tries the shortest path and returns its outcome; OUTCOME_NONE leaves the packet to balance(). Traced
 * programs always take balance(), which records the reasons. */
static __always_inline enum outcome try_shortcut(ctx_t *ctx, void *generation, __u32 *egress)
{
	enum outcome outcome = OUTCOME_NONE;
#if CTX_SHORTCUT && !defined(TRACED)
	__be16 type;
	__u32 tag;

	if ((loaded.modes & SHORTCUT_MODES) &&
	    parse_ethernet(ctx_data(ctx), ctx_data_end(ctx), loaded.mac, false, &type,
			   &tag) == OUTCOME_NONE)
		outcome = type == bpf_htons(ETH_P_IP) ? shortcut(ctx, generation, false, egress) :
							shortcut(ctx, generation, true, egress);
	/* Without this, the compiler precomputes the results of the later tests of it and keeps them in registers. */
	asm("" : "+r"(outcome));
#endif
	return outcome;
}
