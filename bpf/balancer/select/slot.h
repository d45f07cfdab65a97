/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The slot of a packet's hash: its current backend, and the previous one of a moved slot. */
#pragma once

#include "selection.h"
#include "schedule.h"
#include "../flow/track.h"
#include "../scratch.h"

static __always_inline struct backend *member_of(void *generation, __u64 block, __u32 slot)
{
	__u32 member = member_in(generation, table_of(block), slot);

	return member == NO_MEMBER ? NULL :
				     member_at(generation, (__u64)members_of(block) + member);
}

/* lookup_base looks the slot up in the base table. */
static __always_inline void lookup_base(void *generation, const struct service *service,
					__u32 hash, const struct backend *now,
					struct tracking *tracking)
{
	struct backend *base;

	/* The base's words are written before the flag. */
	service = READ_AFTER(is_weak(), service, &service->flags);
	base = member_of(generation, read_block(&service->base), hash_scale(hash, service->base_size));
	if (!base || (now && base->index == now->index && base->generation == now->generation))
		return;
	if (base->up)
		tracking->previous = base->index;
	else
		tracking->orphaned = true;
}

/* lookup_slot looks a packet's slot up. Scratch: writes tracking.current, previous, orphaned and moved. */
__noinline int lookup_slot(const struct service *service, __u32 hash)
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
	tracking->current = tracking->previous = NO_BACKEND;
	tracking->moved = !service->table_size;
	tracking->orphaned = false;
	if (service->table_size) {
		block = read_block(&service->current);
		trace_slot(hash_scale(hash, service->table_size));
		slot = slot_at(generation, (__u64)table_of(block) +
						   hash_scale(hash, service->table_size));
		if (!slot)
			return 0;
		tracking->moved = *slot & SLOT_MOVED;
		now = member_at(generation, (__u64)members_of(block) + (*slot & SLOT_MEMBER));
		if (now)
			tracking->current = now->index;
	}
	/* The flag is written before the block in which slots have moved: inPlace() in publish.go. */
	service = READ_AFTER(is_weak(), service, (const __u64 *)&service->current);
	if (tracking->moved && (service->flags & SERVICE_BASE))
		lookup_base(generation, service, hash, now, tracking);
	return 0;
}

/* select_slot_backend selects by the slot, for a flow that has no entry and gets none. */
static __always_inline __u64 select_slot_backend(const struct tracking *tracking, const struct packet *packet)
{
	bool opens = opens_connection(packet);

	if (tracking->current == NO_BACKEND && opens)
		return fail_with(OUTCOME_DROPPED_NO_BACKEND);
	if (tracking->previous == NO_BACKEND)
		return selection_of(tracking->current, opens);
	trace_add_reason(TRACE_PREVIOUS);
	return selection_of(tracking->previous, opens);
}

/* select_between_owners selects for a moved slot, for a packet whose flow has no entry: a SYN goes to the slot's
 * current backend, any other packet to the previous one. Both get an entry, because the base table is dropped later. If
 * the previous backend was removed, new flows get an entry, too, and so does a flow whose first packet seen here is in
 * midstream: it may have begun at another balancer, and would go to the previous backend once that is back. New flows
 * also get an entry if the slot has its previous backend again: another balancer may have an entry of an earlier
 * connection from the same port, which the new entry replaces by synchronisation. */
static __always_inline __u64 select_between_owners(const struct service *service,
						   const struct packet *packet,
						   const struct tracking *tracking)
{
	bool opens = opens_connection(packet), udp = packet->protocol == IPPROTO_UDP;

	if (tracking->current == NO_BACKEND)
		return select_slot_backend(tracking, packet);
	/* As in lookup_slot(). */
	service = READ_AFTER(is_weak(), service, (const __u64 *)&service->current);
	if (opens && (service->flags & SERVICE_BASE) && create_entry(tracking->current, FLOW_OPENING))
		return selection_of(tracking->current, true);
	if (tracking->previous == NO_BACKEND && !tracking->orphaned)
		return select_slot_backend(tracking, packet);
	if (!opens && !(packet->tcp_flags & TCP_RST))
		create_entry(tracking->previous == NO_BACKEND ? tracking->current : tracking->previous,
			     udp ? FLOW_FIRST : FLOW_SEEN);
	return select_slot_backend(tracking, packet);
}
