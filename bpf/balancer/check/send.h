/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a health check's packet gets to its backend. Include after ctx_tc.h. */
#pragma once

#include "answers.h"
#include "../read.h"
#include "../send/forward.h"

/* check_targets is written by the control plane, which also sets its size. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct check_target);
} check_targets SEC(".maps");

/* read_check reads a frame of a check, and returns its target or NULL. Scratch: writes packet. */
static __always_inline struct check_target *read_check(ctx_t *ctx, struct check_answer *answer)
{
	struct scratch *scratch = get_scratch();
	void *frame;
	__be16 type;
	__u32 mark;

	if (!scratch || ctx_linear(ctx, HEADERS_MAX))
		return NULL;
	frame = ctx_data(ctx);
	if (frame + sizeof(struct ethhdr) > ctx_data_end(ctx))
		return NULL;
	mark = *(__u32 *)(frame + CHECK_MARK_AT);
	type = *(__be16 *)(frame + offsetof(struct ethhdr, h_proto));
	/* The answer is sent to the source of the frame. */
	__builtin_memcpy(answer->macs, frame + ETH_ALEN, ETH_ALEN);
	answer->interface = ctx_interface(ctx);
	if (read_packet(ctx, sizeof(struct ethhdr), type == bpf_htons(ETH_P_IPV6)) != OUTCOME_NONE ||
	    scratch->packet.fragment ||
	    (!has_ports(&scratch->packet) &&
	     !echo_id_as_ports(ctx, &scratch->packet, ECHO_REQUEST4, ECHO_REQUEST6)))
		return NULL;
	return bpf_map_lookup_elem(&check_targets, &mark);
}

/* uses_nat reports whether a backend replies from its own address. */
static __always_inline bool uses_nat(const struct check_target *target)
{
	return target->mode == MODE_NAT || target->mode == MODE_FULLNAT;
}

/* expect_answer stores the translation of the answer to a packet, unless that is stored already. */
static __always_inline long expect_answer(const struct packet *packet,
					  const struct check_target *target,
					  struct check_answer *answer)
{
	struct check_key key = {
		.source_port = packet->destination_port,
		.destination_port = packet->source_port,
		.protocol = packet->protocol,
	};
	struct check_answer *known;

	__builtin_memcpy(key.source,
			 uses_nat(target) ? target->backend.address : packet->destination,
			 sizeof(key.source));
	__builtin_memcpy(key.destination, target->source, sizeof(key.destination));
	__builtin_memcpy(answer->source, packet->destination, sizeof(answer->source));
	__builtin_memcpy(answer->destination, packet->source, sizeof(answer->destination));
	known = bpf_map_lookup_elem(&check_answers, &key);
	if (known && same_address(known->source, answer->source) &&
	    known->interface == answer->interface)
		return 0;
	return bpf_map_update_elem(&check_answers, &key, answer, BPF_ANY);
}

/* set_host_source makes this host the source of a packet. Scratch: reads packet; writes to. */
static __always_inline enum outcome set_host_source(ctx_t *ctx, struct scratch *scratch,
						    const struct check_target *target)
{
	struct packet *packet = &scratch->packet;
	enum outcome outcome;

	identity_translation(packet, &scratch->to);
	__builtin_memcpy(scratch->to.source, target->source, sizeof(target->source));
	scratch->to.ttl_decrement = 0;
	outcome = translate(ctx, packet, &scratch->to);
	__builtin_memcpy(packet->source, target->source, sizeof(target->source));
	return outcome;
}

/* send_check sends a packet to its backend by the functions that send those of services, and returns the kernel's
 * verdict. It probes the port that the socket is connected to, in the modes with NAT too. Scratch: writes packet and
 * to. */
static __always_inline int send_check(ctx_t *ctx)
{
	struct scratch *scratch = get_scratch();
	struct check_answer answer = {};
	struct check_target *target = read_check(ctx, &answer);
	struct decision decision = {};
	struct packet *packet;

	if (!target || !scratch)
		return CTX_DROP;
	packet = &scratch->packet;
	if (expect_answer(packet, target, &answer) ||
	    set_host_source(ctx, scratch, target) != OUTCOME_NONE)
		return CTX_DROP;
	decision.backend = &target->backend;
	decision.mode = target->mode;
	decision.tos = target->tos;
	decision.hash = hash_flow(packet);
	identity_translation(packet, &scratch->to);
	if (decision.mode != MODE_L2DSR) {
		set_destination(&decision, &scratch->to);
		scratch->to.destination_port = packet->destination_port;
	}
	if (forward_inline(ctx, packet, &decision, &scratch->to, false) != OUTCOME_FORWARDED)
		return CTX_DROP;
	return ctx_send(ctx, decision.egress, false);
}
