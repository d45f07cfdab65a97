/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fragmented datagrams: the first fragment, which has the ports, decides on the outcome of the others. */
#pragma once

#include "send/forward.h"
#include "send/returns.h"

/* How long the pieces of a datagram may be on their way, in nanoseconds: as long
 * as Linux waits for them (net.ipv4.ipfrag_time). */
#define FRAGMENT_TIME (30 * SECOND)

static __always_inline void fragment_key(const struct packet *packet, struct fragment_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	__builtin_memcpy(key->source, packet->source, sizeof(key->source));
	__builtin_memcpy(key->destination, packet->destination, sizeof(key->destination));
	key->identification = packet->identification;
	key->protocol = packet->ipv6 ? 0 : packet->protocol;
}

/* remember_first notes the outcome of a first fragment. Scratch: fragment and its key are its own. */
static __noinline int remember_first(const struct packet *packet, const struct decision *decision,
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

/* recall restores the decision about the first; false where its backend is gone. */
static __always_inline bool recall(void *generation, const struct fragment *entry,
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

/* follow_first treats a later fragment as the first one was treated. Scratch: takes to. */
static __always_inline enum outcome follow_first(ctx_t *ctx, void *generation,
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
	if (!recall(generation, entry, decision, to))
		return OUTCOME_DROPPED_FRAGMENT;
	trace_because(TRACE_KNOWN_FRAGMENT);
	trace_backend(decision->backend->index, decision->backend->generation);
	if (entry->outcome == OUTCOME_RETURNED) {
		if (!has_returns())
			return OUTCOME_DROPPED_FRAGMENT;
		trace_because(TRACE_REPLY);
		return send_back(ctx, packet, decision, to);
	}
	if (!decision->backend->up)
		return OUTCOME_DROPPED_BACKEND_DOWN;
	return deliver(ctx, packet, decision, to);
}
