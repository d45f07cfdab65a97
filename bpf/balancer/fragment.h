/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fragmented datagrams: the first fragment, which has the ports, decides on the outcome of the others. */
#pragma once

#include "send/forward.h"
#include "send/revnat.h"

/* Timeout of a datagram's fragments, in nanoseconds: that of Linux (net.ipv4.ipfrag_time). */
#define FRAGMENT_TIME (30 * SECOND)

static __always_inline void fragment_key(const struct packet *packet, struct fragment_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	__builtin_memcpy(key->source, packet->source, sizeof(key->source));
	__builtin_memcpy(key->destination, packet->destination, sizeof(key->destination));
	key->identification = packet->identification;
	key->protocol = packet->ipv6 ? 0 : packet->protocol;
}

/* store_fragment stores the outcome of a first fragment. Scratch: fragment and its key are its own. */
static __noinline int store_fragment(const struct packet *packet, const struct decision *decision,
				     const struct translation *to, enum outcome outcome)
{
	struct scratch *scratch = get_scratch();
	struct fragment *entry;

	if (!scratch || dry_run())
		return 0;
	entry = &scratch->fragment;
	entry->seen = bpf_ktime_get_coarse_ns();
	entry->outcome = outcome;
	entry->mode = decision->mode;
	entry->tos = decision->tos;
	entry->hash = decision->hash;
	__builtin_memcpy(entry->source, to->source, sizeof(entry->source));
	__builtin_memcpy(entry->destination, to->destination, sizeof(entry->destination));
	if (decision->backend) {
		entry->backend = decision->backend->index;
		entry->generation = decision->backend->generation;
	}
	fragment_key(packet, &scratch->fragment_key);
	bpf_map_update_elem(&fragments, &scratch->fragment_key, entry, BPF_ANY);
	return 0;
}

/* restore_decision restores the decision about the first fragment; false where its backend was removed. */
static __always_inline bool restore_decision(void *generation, const struct fragment *entry,
					     struct decision *decision, struct translation *to)
{
	struct backend *backend = backend_at(generation, entry->backend);

	if (!backend || backend->generation != entry->generation)
		return false;
	decision->backend = backend;
	decision->mode = entry->mode;
	decision->tos = entry->tos;
	decision->hash = entry->hash;
	__builtin_memcpy(to->source, entry->source, sizeof(to->source));
	__builtin_memcpy(to->destination, entry->destination, sizeof(to->destination));
	if (entry->mode == MODE_DSCP && entry->outcome == OUTCOME_FORWARDED)
		to->tos = entry->tos | (to->tos & 3);
	return true;
}

/* forward_fragment forwards a later fragment as the first one. Scratch: reads to. */
static __always_inline enum outcome forward_fragment(ctx_t *ctx, void *generation,
						     const struct packet *packet,
						     struct decision *decision,
						     struct scratch *scratch)
{
	struct translation *to = &scratch->to;
	struct fragment *entry;

	fragment_key(packet, &scratch->fragment_key);
	entry = bpf_map_lookup_elem(&fragments, &scratch->fragment_key);
	if (!entry || bpf_ktime_get_coarse_ns() - entry->seen > FRAGMENT_TIME)
		return is_ours(generation, packet) ? OUTCOME_DROPPED_FRAGMENT :
						     OUTCOME_PASSED_NO_SERVICE;
	if (ctx_length(ctx) < packet->network + packet->length)
		return OUTCOME_DROPPED_MALFORMED;
	if (entry->outcome == OUTCOME_PASSED_NO_SERVICE)
		return OUTCOME_PASSED_NO_SERVICE;
	if (!restore_decision(generation, entry, decision, to))
		return OUTCOME_DROPPED_FRAGMENT;
	trace_add_reason(TRACE_KNOWN_FRAGMENT);
	trace_backend(decision->backend->index, decision->backend->generation);
	if (entry->outcome == OUTCOME_RETURNED) {
		if (!has_returns())
			return OUTCOME_DROPPED_FRAGMENT;
		trace_add_reason(TRACE_REPLY);
		return send_back(ctx, packet, decision, to);
	}
	if (!decision->backend->up)
		return OUTCOME_DROPPED_BACKEND_DOWN;
	return forward(ctx, packet, decision, to);
}
