/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The way of a packet. Include after one of the ctx_*.h headers. */
#pragma once

#include "count.h"
#include "forward.h"
#include "maps.h"
#include "parse.h"
#include "select.h"

/* Enough for Ethernet, IP with options or a few extension headers, and the
 * transport header. */
#define HEADERS_MAX 256

/* whole says whether the frame holds all of the IP packet that its header
 * announces. */
static __always_inline bool whole(ctx_t *ctx, const struct packet *packet, __u64 linear)
{
	__u64 wanted = sizeof(struct ethhdr) + packet->length;

	return linear >= wanted || ctx_length(ctx) >= wanted;
}

/* balance_ip takes a packet of one family from its IP header to its outcome.
 * Inlined once for each family, so that neither pays for the other. */
static __always_inline enum outcome balance_ip(ctx_t *ctx, void *generation, bool ipv6,
					       void *data, void *data_end)
{
	struct packet packet = {};
	struct choice choice = {};
	struct service *service;
	enum outcome outcome;

	outcome = ipv6 ? parse_ipv6(&packet, data + sizeof(struct ethhdr), data_end) :
			 parse_ipv4(&packet, data + sizeof(struct ethhdr), data_end);
	if (outcome != OUTCOME_NONE)
		return outcome;
	outcome = select_service(generation, &packet, &service);
	if (outcome != OUTCOME_NONE)
		return outcome;
	if (!whole(ctx, &packet, data_end - data))
		return OUTCOME_DROPPED_MALFORMED;
	outcome = select_backend(generation, &packet, service, &choice);
	if (outcome != OUTCOME_NONE)
		return outcome;
	forward_l2dsr(data, choice.backend);
	count_backend(&packet, &choice, ctx_packets(ctx));
	return OUTCOME_FORWARDED;
}

/* balance decides, rewrites and counts; it returns how the packet ended. */
static __always_inline enum outcome balance(ctx_t *ctx)
{
	/* First of all: a call leaves few registers as they were. */
	void *generation = current_generation();
	enum outcome outcome;
	void *data, *data_end;
	bool ipv6;

	if (!generation)
		return OUTCOME_DROPPED_NO_BACKEND;
	if (ctx_linear(ctx, HEADERS_MAX))
		return OUTCOME_DROPPED_MALFORMED;
	data = ctx_data(ctx);
	data_end = ctx_data_end(ctx);
	outcome = parse_ethernet(data, data_end, loaded.mac, &ipv6);
	if (outcome != OUTCOME_NONE)
		return outcome;
	if (ipv6)
		return balance_ip(ctx, generation, true, data, data_end);
	return balance_ip(ctx, generation, false, data, data_end);
}

/* verdict tells the kernel what the outcome means. */
static __always_inline int verdict(const ctx_t *ctx, enum outcome outcome)
{
	if (outcome == OUTCOME_FORWARDED)
		return ctx_transmit(ctx);
	if (outcome <= OUTCOME_PASSED_NO_SERVICE)
		return CTX_PASS;
	return CTX_DROP;
}
