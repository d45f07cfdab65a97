/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet's path. Include after one of the ctx_*.h headers. */
#pragma once

#include "count.h"
#include "fragment.h"
#include "maps.h"
#include "read.h"
#include "readable.h"
#include "trace.h"
#include "answer/icmp.h"
#include "answer/reject.h"
#include "select/clients.h"
#include "select/hairpin.h"
#include "select/fastpath.h"
#include "select/lookup.h"
#include "send/forward.h"
#include "send/fastsend.h"
#include "send/fastreply.h"
#include "send/revnat.h"
#include "link.h"
#include "parse.h"

/* select_on_slow_path selects a packet's backend before all other steps: called from further down, it would not fit the
 * stack. Scratch: reads packet; writes tracking.source. */
__noinline __u64 select_on_slow_path(ctx_t *ctx, const struct service *service)
{
	struct scratch *scratch = get_scratch();

	if (!service || !scratch)
		return fail_with(OUTCOME_DROPPED_NO_BACKEND);
	if (!is_complete(ctx, &scratch->packet))
		return fail_with(OUTCOME_DROPPED_MALFORMED);
	if (is_denied(service, &scratch->packet, scratch->packet.ipv6))
		return fail_with(OUTCOME_DROPPED_DENIED);
	scratch->tracking.sequence = sequence_of(ctx, &scratch->packet);
	return lookup_or_select(service, scratch, service_hash(service, &scratch->packet));
}

/* forward_request forwards a packet for a service to the selected backend. */
static __always_inline enum outcome forward_request(ctx_t *ctx, void *generation,
						    const struct packet *packet, __u64 selection,
						    struct decision *decision,
						    struct translation *to)
{
	enum outcome outcome;

	init_decision(decision->service, packet, decision);
	identity_translation(packet, to);
	outcome = apply_selection(generation, selection, decision, to);
	if (outcome != OUTCOME_NONE)
		return outcome;
	/* Verifiers of Linux 6.1 do not see that there is one. */
	if (!decision->backend)
		return OUTCOME_DROPPED_NO_BACKEND;
	trace_backend(decision->backend->index, decision->backend->generation);
	set_destination(decision, to);
	outcome = forward_inline(ctx, packet, decision, to, true);
	if (outcome == OUTCOME_FORWARDED)
		count_backend(packet, decision, ctx_packets(ctx));
	return outcome;
}

/* note_answer_of counts the reply in the scratch memory for its backend's passive health, if it answers a SYN. Scratch:
 * reads packet. */
__noinline int note_answer_of(ctx_t *ctx, __u32 backend)
{
	struct scratch *scratch = get_scratch();

	if (scratch)
		count_answer(&scratch->packet, sequence_of(ctx, &scratch->packet), &backend);
	return 0;
}

/* forward_reply forwards a packet that is for no service to its client, if it is a backend's reply. */
static __always_inline enum outcome forward_reply(ctx_t *ctx, void *generation,
						  const struct packet *packet,
						  struct decision *decision,
						  struct translation *to)
{
	bool complete = is_complete(ctx, packet);
	enum outcome outcome;

	identity_translation(packet, to);
	outcome = select_return(generation, packet, decision, to, complete);
	if (outcome != OUTCOME_NONE)
		return outcome;
	trace_backend(decision->backend->index, decision->backend->generation);
	if (complete)
		outcome = send_back_inline(ctx, packet, decision, to, true);
	else
		outcome = OUTCOME_DROPPED_MALFORMED;
	trace_add_reason(reply_trace_reason(outcome));
	if (outcome == OUTCOME_RETURNED)
		count_returned(packet, decision, ctx_packets(ctx));
	/* The kernel may still have to resolve the next hop of a new client. */
	if ((packet->tcp_flags & (TCP_SYN | TCP_RST)) &&
	    (outcome == OUTCOME_RETURNED || outcome == OUTCOME_PASSED_TO_ROUTE))
		note_answer_of(ctx, decision->backend->index);
	return outcome;
}

/* balance_service handles packets whose service changes more than the frame's MAC addresses, and first fragments.
 * Scratch: reads packet and tracking.source. */
__noinline int balance_service(ctx_t *ctx, struct service *service, __u64 selection, __u32 *egress)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct decision decision = {};
	enum outcome outcome;

	if (!service || !egress || !scratch)
		return OUTCOME_DROPPED_NO_BACKEND;
	decision.service = service;
	outcome = forward_request(ctx, generation, &scratch->packet, selection, &decision, &scratch->to);
	*egress = decision.egress;
	if (scratch->packet.fragment && outcome == OUTCOME_FORWARDED)
		store_fragment(&scratch->packet, &decision, &scratch->to, outcome);
	return outcome;
}

/* store_passed_fragment stores that a first fragment was passed, where the later ones would otherwise be dropped. */
static __noinline int store_passed_fragment(void *generation, const struct packet *packet,
					    const struct decision *decision, const struct translation *to)
{
	if (is_ours(generation, packet))
		store_fragment(packet, decision, to, OUTCOME_PASSED_NO_SERVICE);
	return 0;
}

/* note_close updates the flow of a backend's FIN or RST in the scratch memory. Scratch: reads packet, writes closes. */
__noinline int note_close(ctx_t *ctx)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct endpoint *endpoint;
	struct packet *packet;

	if (!scratch)
		return 0;
	packet = &scratch->packet;
	scratch->closes = false;
	if (is_pool(generation, packet) || !is_complete(ctx, packet))
		return 0;
	endpoint = endpoint_of(generation, packet, packet->source_port, packet->protocol);
	scratch->closes = endpoint && endpoint->service != NO_SERVICE &&
			note_reply(packet, endpoint->service, endpoint->backend);
	return 0;
}

/* balance_reply handles packets with ports whose destination is no service. Scratch: reads packet. */
__noinline int balance_reply(ctx_t *ctx, __u32 *egress)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct decision decision = {};
	enum outcome outcome;

	if (!egress || !scratch)
		return OUTCOME_DROPPED_NO_BACKEND;
	outcome = forward_reply(ctx, generation, &scratch->packet, &decision, &scratch->to);
	*egress = decision.egress;
	if (!scratch->packet.fragment)
		return outcome;
	if (outcome == OUTCOME_RETURNED || outcome == OUTCOME_PASSED_TO_ROUTE)
		store_fragment(&scratch->packet, &decision, &scratch->to, OUTCOME_RETURNED);
	else if (outcome == OUTCOME_PASSED_NO_SERVICE || is_non_reply(outcome))
		store_passed_fragment(generation, &scratch->packet, &decision, &scratch->to);
	return outcome;
}

/* balance_other handles later fragments, ICMP, and packets that cannot be parsed. Scratch: reads packet. */
__noinline int balance_other(ctx_t *ctx, __u32 *egress)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct decision decision = {};
	const struct packet *packet;
	enum outcome outcome;

	if (!egress || !scratch)
		return OUTCOME_DROPPED_NO_BACKEND;
	packet = &scratch->packet;
	identity_translation(packet, &scratch->to);
	if (packet->unwalked)
		return is_ours(generation, packet) ? OUTCOME_DROPPED_EXTENSION_HEADERS :
						     OUTCOME_PASSED_NO_SERVICE;
	if (packet->later) {
		outcome = forward_fragment(ctx, generation, packet, &decision, scratch);
	} else if (is_error(ctx, packet)) {
		outcome = relay_error(ctx, generation, packet, &decision);
	} else {
		if (packet->fragment)
			store_passed_fragment(generation, packet, &decision, &scratch->to);
		return OUTCOME_PASSED_NO_SERVICE;
	}
	*egress = decision.egress;
	if (!decision.backend)
		return outcome;
	if (outcome == OUTCOME_FORWARDED)
		count_backend(packet, &decision, ctx_packets(ctx));
	else if (outcome == OUTCOME_RETURNED)
		count_returned(packet, &decision, ctx_packets(ctx));
	return outcome;
}

/* leave_fast_path saves the parsed packet for the slow path, and by full NAT the source of its flow, if that is known.
 * Scratch: writes packet, and tracking.source. */
static __always_inline enum outcome leave_fast_path(const struct packet *packet,
						   const struct flow *flow)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return OUTCOME_DROPPED_NO_BACKEND;
	scratch->packet = *packet;
	if (has_mode(MODE_FULLNAT) && flow)
		scratch->tracking.source = flow->source;
	return OUTCOME_NONE;
}

/* send_on_fast_path sends a plain packet to the selected backend, if it needs no more than the fast path does: else
 * OUTCOME_NONE, and nothing is written. */
static __always_inline enum outcome send_on_fast_path(ctx_t *ctx, struct packet *packet,
						      const struct decision *decision,
						      const struct flow *flow, void *frame,
						      __u32 network, bool ipv6, __u32 *egress)
{
#ifndef TRACED
	if (sends_midstream(decision, flow))
		return send_from_pool(ctx, flow, decision->backend, midstream_at(network, ipv6));
#else
	/* The packet was passed to a function by reference, which to the compiler may have changed this, so that the
	 * verifier would no longer know that the header can be read. */
	packet->network = network;
	/* The notes leave too little of the stack for another IPv6. */
	if (ipv6 && decision->mode != MODE_L2DSR)
		return OUTCOME_NONE;
#endif
	if (!can_send_fast(decision->service))
		return OUTCOME_NONE;
	return send_fast(ctx, packet, decision, frame, ipv6, egress);
}

/* balance_not_plain dispatches a packet that is not plain, or whose header has no length. Scratch: writes packet. */
static __always_inline enum outcome balance_not_plain(ctx_t *ctx, void *generation, __u32 network,
						      bool ipv6, struct service **service)
{
	enum outcome outcome = read_packet(ctx, network, ipv6);
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return OUTCOME_DROPPED_NO_BACKEND;
	if (outcome != OUTCOME_NONE)
		return outcome;
	if (!has_ports(&scratch->packet))
		return OUTCOME_NONE;
	*service = search_service(generation, &scratch->packet,
				  scratch->packet.destination_port, scratch->packet.protocol);
	return OUTCOME_NONE;
}

/* balance_ip handles a plain packet of one family on the fast path: its outcome, or OUTCOME_NONE where it leaves the
 * fast path. Inlined for each family, so that neither pays for the other, and written for the common packet: complete,
 * of TCP or UDP, and for a service that rewrites at most its addresses. Of another, *service is then known. Scratch:
 * writes what leave_fast_path() does. */
static __always_inline enum outcome balance_ip(ctx_t *ctx, void *generation, bool ipv6,
					       __u32 network, struct service **service,
					       __u32 *egress)
{
	void *data = ctx_data(ctx), *data_end = ctx_data_end(ctx);
	struct packet packet = {
		.network = network,
	};
	struct decision decision = {};
	const struct flow *flow = NULL;
	enum outcome outcome;

	outcome = ipv6 ? parse_plain6(&packet, data + network, data_end) :
			 parse_plain4(&packet, data + network, data_end);
	trace_read(ctx, &packet);
	/* BIG TCP has no length in its header. */
	if (outcome != OUTCOME_NONE)
		return ctx_gso(ctx) ? balance_not_plain(ctx, generation, network, ipv6, service) : outcome;
	if (has_ports(&packet)) {
		*service = find_service(generation, &packet, packet.destination_port,
					packet.protocol);
		if (!*service && !packet.fragment && !has_mode(MODE_NAT) && !has_mode(MODE_FULLNAT))
			return OUTCOME_PASSED_NO_SERVICE;
	}
#if !CTX_SHORTCUT && !defined(TRACED)
	if (!*service && has_ports(&packet) && !packet.fragment && is_complete(ctx, &packet)) {
		outcome = reply_on_fast_path(ctx, generation, &packet, ipv6, egress);
		if (outcome != OUTCOME_NONE)
			return outcome;
	}
#endif
	if (!*service || packet.fragment)
		return leave_fast_path(&packet, NULL);
	trace_service(*service);
	if (!is_complete(ctx, &packet))
		return OUTCOME_DROPPED_MALFORMED;
	if (checks_clients(*service)) {
		if (is_near(*service, &packet, ipv6))
			return leave_fast_path(&packet, NULL);
		if (is_denied(*service, &packet, ipv6))
			return OUTCOME_DROPPED_DENIED;
	}
	init_decision(*service, &packet, &decision);
	if (!select_on_fast_path(ctx, generation, &packet, &decision, ipv6, &flow))
		return leave_fast_path(&packet, NULL);
	if (!decision.backend) {
		leave_fast_path(&packet, NULL);
		return OUTCOME_DROPPED_NO_BACKEND;
	}
	trace_backend(decision.backend->index, decision.backend->generation);
	outcome = send_on_fast_path(ctx, &packet, &decision, flow, data, network, ipv6, egress);
	if (outcome != OUTCOME_NONE)
		return outcome;
	leave_fast_path(&packet, flow);
	return balance_service(ctx, *service, selection_of(decision.backend->index, decision.opens),
			       egress);
}

/* balance_on_slow_path handles a packet that has left the fast path before a backend was selected. Scratch: reads
 * packet. */
static __always_inline enum outcome balance_on_slow_path(ctx_t *ctx, struct service *service,
						     __u32 *egress)
{
	struct scratch *scratch;

	scratch = get_scratch();
	if (service && scratch) {
		service = service_for_client(current_generation(), service, &scratch->packet,
					     scratch->packet.protocol);
		return balance_service(ctx, service, select_on_slow_path(ctx, service), egress);
	}
	if (!scratch || !has_ports(&scratch->packet))
		return balance_other(ctx, egress);
	if (has_mode(MODE_NAT) && (scratch->packet.tcp_flags & (TCP_FIN | TCP_RST)))
		note_close(ctx);
	return balance_reply(ctx, egress);
}

/* balance selects a backend, rewrites and counts; it returns the outcome, and the egress interface in *egress. */
static __always_inline enum outcome balance(ctx_t *ctx, void *generation, __u32 *egress)
{
	struct service *service = NULL;
	enum outcome outcome;
	__u32 tag, network;
	void *header;
	__be16 type;
	bool ipv6;

	if (!readable(ctx) && ctx_linear(ctx, HEADERS_MAX))
		return OUTCOME_DROPPED_MALFORMED;
	outcome = parse_ethernet(ctx_data(ctx), ctx_data_end(ctx), loaded.mac, CTX_TAGS, &type,
				 &tag);
	if (outcome != OUTCOME_NONE)
		return outcome;
	network = network_at(tag);
	header = ctx_data(ctx) + network;
	ipv6 = type == bpf_htons(ETH_P_IPV6);
	if (ipv6 && is_plain6(header, ctx_data_end(ctx)))
		outcome = balance_ip(ctx, generation, true, network, &service, egress);
	else if (!ipv6 && is_plain4(header, ctx_data_end(ctx)))
		outcome = balance_ip(ctx, generation, false, network, &service, egress);
	else
		outcome = balance_not_plain(ctx, generation, network, ipv6, &service);
	if (outcome == OUTCOME_NONE)
		outcome = balance_on_slow_path(ctx, service, egress);
	if (outcome == OUTCOME_TOO_BIG)
		return answer_too_big(ctx);
	if (outcome == OUTCOME_TIME_EXCEEDED)
		return answer_time_exceeded(ctx);
	return is_rejectable(outcome) ? reject(ctx, service, outcome) : outcome;
}
