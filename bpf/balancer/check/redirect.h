/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Redirects answers to health checks to the sockets that wait for them, before the host's own stack sees them: the
 * stack would not take a packet from the VIP, which is an address of its own. Include after one of the ctx_*.h
 * headers. */
#pragma once

#include "answers.h"
#include "../read.h"
#include "../answer/icmp.h"
#include "../send/forward.h"

/* may_answer reports whether a packet may be an answer to a check, by its outcome: it is for no service, and unchanged.
 * */
static __always_inline bool may_answer(enum outcome outcome)
{
	return outcome == OUTCOME_PASSED_NO_SERVICE || is_non_reply(outcome);
}

/* find_answer looks up the check that waits for a packet with these addresses and ports. */
static __always_inline struct check_answer *find_answer(const __be32 *source,
							const __be32 *destination,
							__be16 source_port,
							__be16 destination_port, __u8 protocol)
{
	struct check_key key = {
		.source_port = source_port,
		.destination_port = destination_port,
		.protocol = protocol,
	};

	if (bpf_ntohs(destination_port) < CHECK_FIRST_PORT)
		return NULL;
	__builtin_memcpy(key.source, source, sizeof(key.source));
	__builtin_memcpy(key.destination, destination, sizeof(key.destination));
	return bpf_map_lookup_elem(&check_answers, &key);
}

/* redirect_error finds the check whose packet an ICMP error quotes, and translates the quote into the packet that the
 * check has sent. Scratch: reads packet; writes quoted, quote and to. */
static __noinline struct check_answer *redirect_error(ctx_t *ctx, struct scratch *scratch)
{
	struct packet *packet = &scratch->packet, *quoted = &scratch->quoted;
	struct check_answer *answer;

	if (!parse_quoted(ctx, packet, quoted))
		return NULL;
	answer = find_answer(quoted->destination, quoted->source, quoted->destination_port,
			     quoted->source_port, quoted->protocol);
	if (!answer || !same_address(packet->destination, quoted->source))
		return NULL;
	identity_translation(quoted, &scratch->quote);
	__builtin_memcpy(scratch->quote.source, answer->destination, sizeof(answer->destination));
	__builtin_memcpy(scratch->quote.destination, answer->source, sizeof(answer->source));
	/* An error of a router between us and the backend keeps its source. */
	if (same_address(packet->source, quoted->destination))
		__builtin_memcpy(scratch->to.source, answer->source, sizeof(answer->source));
	return rewrite_quote(ctx, packet, quoted, &scratch->quote) ? answer : NULL;
}

/* redirect_reply finds the check that a packet with ports, or an echo reply, is for. Scratch: reads packet and to;
 * writes to. */
static __noinline struct check_answer *redirect_reply(ctx_t *ctx, struct scratch *scratch)
{
	struct packet *packet = &scratch->packet;
	struct check_answer *answer;

	if (!has_ports(packet) && !echo_id_as_ports(ctx, packet, ECHO_REPLY4, ECHO_REPLY6))
		return NULL;
	answer = find_answer(packet->source, packet->destination, packet->source_port,
			     packet->destination_port, packet->protocol);
	if (answer)
		__builtin_memcpy(scratch->to.source, answer->source, sizeof(answer->source));
	return answer;
}

/* redirect_answer translates an answer to a check for its socket, and returns the interface towards the socket, or 0 if
 * the packet answers no check. Scratch: writes packet and to. */
__noinline int redirect_answer(ctx_t *ctx)
{
	struct scratch *scratch = get_scratch();
	struct check_answer *answer;
	struct packet *packet;
	__be16 type;
	__u32 tag;

	if (!scratch || parse_ethernet(ctx_data(ctx), ctx_data_end(ctx), loaded.mac, CTX_TAGS, &type,
				       &tag) != OUTCOME_NONE)
		return 0;
	packet = &scratch->packet;
	if (read_packet(ctx, network_at(tag), type == bpf_htons(ETH_P_IPV6)) != OUTCOME_NONE ||
	    packet->fragment)
		return 0;
	identity_translation(packet, &scratch->to);
	scratch->to.ttl_decrement = 0;
	answer = is_error(ctx, packet) ? redirect_error(ctx, scratch) : redirect_reply(ctx, scratch);
	if (!answer)
		return 0;
	__builtin_memcpy(scratch->to.destination, answer->destination, sizeof(answer->destination));
	if (translate(ctx, packet, &scratch->to) != OUTCOME_NONE ||
	    rewrite_macs(ctx, packet, answer->macs, answer->interface))
		return 0;
	return answer->interface;
}
