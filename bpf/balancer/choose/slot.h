/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The slot of a packet's hash: whose it is now, and whose it was before it changed hands. */
#pragma once

#include "choice.h"
#include "schedule.h"
#include "../flow/track.h"
#include "../scratch.h"

static __always_inline struct backend *member_of(void *generation, __u64 block, __u32 slot)
{
	__u32 member = member_in(generation, table_of(block), slot);

	return member == NO_MEMBER ? NULL :
				     member_at(generation, (__u64)members_of(block) + member);
}

/* look_before looks the slot up as it was. */
static __always_inline void look_before(void *generation, const struct service *service,
					__u32 hash, const struct backend *now,
					struct tracking *tracking)
{
	struct backend *base;

	/* The base's words are written before the flag. */
	service = READ_AFTER(is_weak(), service, &service->flags);
	base = member_of(generation, pair(&service->base), hash_scale(hash, service->base_size));
	if (!base || (now && base->index == now->index && base->generation == now->generation))
		return;
	if (base->up)
		tracking->before = base->index;
	else
		tracking->orphaned = true;
}

/* look_slot_up looks a packet's slot up. Scratch: leaves tracking.now, before, orphaned and
 * moved. */
__noinline int look_slot_up(const struct service *service, __u32 hash)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	struct backend *now = NULL;
	__u64 block;
	__u16 *slot;

	if (!service || !scratch)
		return 0;
	tracking = &scratch->tracking;
	tracking->now = tracking->before = NO_BACKEND;
	tracking->moved = !service->table_size;
	tracking->orphaned = false;
	if (service->table_size) {
		block = pair(&service->current);
		trace_slot(hash_scale(hash, service->table_size));
		slot = slot_at(generation, (__u64)table_of(block) +
						   hash_scale(hash, service->table_size));
		if (!slot)
			return 0;
		tracking->moved = *slot & SLOT_MOVED;
		now = member_at(generation, (__u64)members_of(block) + (*slot & SLOT_MEMBER));
		if (now)
			tracking->now = now->index;
	}
	/* The flag is written before the block in which slots have moved: inPlace() in publish.go. */
	service = READ_AFTER(is_weak(), service, (const __u64 *)&service->current);
	if (tracking->moved && (service->flags & SERVICE_BASE))
		look_before(generation, service, hash, now, tracking);
	return 0;
}

/* by_hash is the choice where the flow has no entry, and gets none. */
static __always_inline __u64 by_hash(const struct tracking *tracking, const struct packet *packet)
{
	bool opens = opens_connection(packet);

	if (tracking->now == NO_BACKEND && opens)
		return fail_with(OUTCOME_DROPPED_NO_BACKEND);
	if (tracking->before == NO_BACKEND)
		return choice_of(tracking->now, opens);
	trace_because(TRACE_FORMER);
	return choice_of(tracking->before, opens);
}

/* between_owners chooses where a slot has changed hands and the packet's flow has no entry: an opening packet goes to
 * the new owner, any other to the previous one. Both get an entry, for the base table will be dropped. Where the
 * previous owner has left, new flows get one, too, and so does a flow whose first packet seen here does not open it: it
 * may have begun at another balancer, and would be taken for the previous owner's once that is back. New flows also get
 * one where the slot is the previous owner's again: another balancer may have an entry of an earlier connection from
 * the same port, and is to learn of the new one. */
static __always_inline __u64 between_owners(const struct service *service,
					    const struct packet *packet,
					    const struct tracking *tracking)
{
	bool opens = opens_connection(packet), udp = packet->protocol == IPPROTO_UDP;

	if (tracking->now == NO_BACKEND)
		return by_hash(tracking, packet);
	/* As in look_slot_up(). */
	service = READ_AFTER(is_weak(), service, (const __u64 *)&service->current);
	if (opens && (service->flags & SERVICE_BASE) && remember(tracking->now, FLOW_OPENING))
		return choice_of(tracking->now, true);
	if (tracking->before == NO_BACKEND && !tracking->orphaned)
		return by_hash(tracking, packet);
	if (!opens && !(packet->tcp_flags & TCP_RST))
		remember(tracking->before == NO_BACKEND ? tracking->now : tracking->before,
			 udp ? FLOW_FIRST : FLOW_SEEN);
	return by_hash(tracking, packet);
}
