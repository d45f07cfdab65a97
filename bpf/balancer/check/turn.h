/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Answers to health checks are turned to the sockets that wait for them before the host's own
 * stack sees them, to which the VIP that they come from is an address of its own. Include after
 * one of the ctx_*.h headers. */
#pragma once

#include "answers.h"
#include "../read.h"
#include "../send/forward.h"

/* may_answer says whether a packet may answer a check, by what it would end as otherwise: it
 * is for no service, and as it was. */
static __always_inline bool may_answer(enum outcome outcome)
{
	return outcome == OUTCOME_PASSED_NO_SERVICE || is_left_alone(outcome);
}

/* turn_answer makes an answer to a check one that its socket takes: the interface that leads
 * there, or 0 where the packet is none. Scratch: leaves packet and to. */
__noinline int turn_answer(ctx_t *ctx)
{
	struct scratch *scratch = get_scratch();
	struct check_answer *answer;
	struct check_key key = {};
	struct packet *packet;
	__be16 type;
	__u32 tag;

	if (!scratch || parse_ethernet(ctx_data(ctx), ctx_data_end(ctx), loaded.mac, CTX_TAGS, &type,
				       &tag) != OUTCOME_NONE)
		return 0;
	packet = &scratch->packet;
	if (read_packet(ctx, network_at(tag), type == bpf_htons(ETH_P_IPV6)) != OUTCOME_NONE ||
	    !has_ports(packet) || packet->fragment ||
	    bpf_ntohs(packet->destination_port) < CHECK_FIRST_PORT)
		return 0;
	__builtin_memcpy(key.source, packet->source, sizeof(key.source));
	__builtin_memcpy(key.destination, packet->destination, sizeof(key.destination));
	key.source_port = packet->source_port;
	key.destination_port = packet->destination_port;
	key.protocol = packet->protocol;
	answer = bpf_map_lookup_elem(&check_answers, &key);
	if (!answer)
		return 0;
	unchanged(packet, &scratch->to);
	__builtin_memcpy(scratch->to.source, answer->source, sizeof(answer->source));
	__builtin_memcpy(scratch->to.destination, answer->destination, sizeof(answer->destination));
	scratch->to.hops = 0;
	if (translate(ctx, packet, &scratch->to) != OUTCOME_NONE ||
	    readdress(ctx, packet, answer->macs, answer->interface))
		return 0;
	return answer->interface;
}
