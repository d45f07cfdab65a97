/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Selection of a packet's backend, where that is more than a function of the packet: flows with an entry, and moved
 * slots. The steps are functions that are called one after the other: nested, they would not fit the stack. */
#pragma once

#include "limits.h"
#include "flowlookup.h"
#include "schedule.h"
#include "slot.h"
#include "../flow/evict.h"
#include "../flow/poolport.h"
#include "../flow/prove.h"

/* pick_for_new_flow picks the backend of a new flow, within the service's limits. */
static __always_inline __u64 pick_for_new_flow(const struct service *service, __u32 hash)
{
	enum outcome outcome = check_limits(service);
	__u64 index = PICK_NONE;

	if (outcome != OUTCOME_NONE)
		return fail_with(outcome);
	if (service->flags & SERVICE_PERSISTENT)
		index = find_affinity(service);
	if (index == PICK_NONE)
		index = pick_backend(service, hash);
	if (index == PICK_FULL)
		return fail_with(OUTCOME_DROPPED_CONNECTION_LIMIT);
	return index == PICK_NONE ? SELECTION_NONE : index;
}

/* requires_entry reports whether each flow of a service needs an entry. */
static __always_inline bool requires_entry(const struct service *service)
{
	return (service->flags & SERVICE_LIMITED) || is_fullnat(service);
}

/* create_or_evict creates the entry of a new flow, if need be by evicting another. */
static __always_inline bool create_or_evict(const struct service *service, __u32 index, __u32 state,
					    const struct tracking *tracking)
{
	return create_entry(index, state) ||
	       (requires_entry(service) && evict_oldest(tracking->flow_hash) &&
		create_entry(index, state));
}

/* begin_flow begins a flow of a service that tracks flows; SELECTION_NONE if there is no room for an entry and none is
 * required. */
static __always_inline __u64 begin_flow(const struct service *service,
					const struct packet *packet, __u32 hash,
					const struct tracking *tracking)
{
	__u64 selection = pick_for_new_flow(service, hash);
	enum outcome outcome;

	if (selection & (SELECTION_FAILED | SELECTION_NONE))
		return selection;
	if (!create_or_evict(service, selection, first_state(packet), tracking))
		return requires_entry(service) ? fail_with(OUTCOME_DROPPED_FLOW_TABLE_FULL) :
						SELECTION_NONE;
	if (is_fullnat(service)) {
		outcome = begin_fullnat(service, hash_flow(packet));
		if (outcome != OUTCOME_NONE)
			return fail_with(outcome);
	}
	if (!dry_run())
		count_flow(service->id, selection, 1);
	if (service->flags & SERVICE_PERSISTENT)
		store_affinity();
	trace_add_reason(TRACE_NEW_FLOW);
	return selection | SELECTION_OPENS;
}

/* note_untracked stores the time of a packet that goes to a backend by the hash although its service tracks flows: the
 * backend's replies belong to no entry. */
static __always_inline void note_untracked(const struct service *service,
					   const struct packet *packet)
{
	__u32 now = clock_of(current_generation()) | 1;
	struct turn *turn;

	/* A reset is not answered. */
	if (service->mode != MODE_NAT || (packet->tcp_flags & TCP_RST) || dry_run())
		return;
	turn = turn_of(service->id);
	if (turn && turn->unremembered != now)
		turn->unremembered = now;
}

/* pin_earlier_flow creates the entry of a flow in midstream that may be from before its service was tracked, where its
 * slot has moved: the base table, by which its packets go to its backend, is dropped later. Other flows get none: their
 * backend is unknown, and would count a flow that it resets. */
static __always_inline void pin_earlier_flow(const struct service *service,
					     const struct packet *packet,
					     const struct tracking *tracking)
{
	__u32 owner = tracking->previous;
	struct turn *turn;

	if (owner == NO_BACKEND || !is_midstream(packet) || (packet->tcp_flags & TCP_RST))
		return;
	turn = turn_of(service->id);
	if (turn && turn->tracked == TURN_TRACKED_LATER && create_entry(owner, FLOW_SEEN) &&
	    !dry_run())
		count_flow(service->id, owner, 1);
}

/* select_untracked selects a backend by the slot, for a packet of a tracked service whose flow has no entry. */
static __always_inline __u64 select_untracked(const struct service *service, const struct packet *packet,
					      __u32 hash, const struct tracking *tracking)
{
	note_untracked(service, packet);
	lookup_slot(service, hash);
	pin_earlier_flow(service, packet, tracking);
	return select_slot_backend(tracking, packet);
}

/* begin_reuse completes the selection for a SYN that reuses the 5-tuple of a proven flow: FLOW_CONTESTED makes later
 * lookups distinguish the flow's packets from those of the pending connection. If there was no room for the pending
 * entry, the SYN counts as the flow's. */
static __always_inline __u64 begin_reuse(const struct service *service,
					 const struct tracking *tracking, __u64 selection)
{
	struct flow_bucket *bucket = bucket_of(true, tracking->reused);

	if (selection == SELECTION_NONE)
		return service->table_size ? selection_at(tracking->reused, true) :
					     fail_with(OUTCOME_DROPPED_NO_BACKEND);
	if (bucket && !(selection & SELECTION_FAILED) && !dry_run())
		set_state(bucket, index_of(tracking->reused), FLOW_ESTABLISHED, FLOW_CONTESTED);
	return selection;
}

/* begin_or_select_slot selects a backend for a packet of a tracked service whose flow has no entry: it begins the flow,
 * or selects by the slot. */
static __always_inline __u64 begin_or_select_slot(const struct service *service,
						  const struct packet *packet, __u32 hash,
						  const struct tracking *tracking)
{
	bool fresh = packet->protocol == IPPROTO_UDP || opens_connection(packet);
	__u64 selection = fresh ? begin_flow(service, packet, hash, tracking) : SELECTION_NONE;

	if (tracking->reused)
		return begin_reuse(service, tracking, selection);
	if (selection != SELECTION_NONE)
		return selection;
	if (is_fullnat(service))
		return fail_with(fresh ? OUTCOME_DROPPED_NO_BACKEND : OUTCOME_DROPPED_NO_FLOW);
	return select_untracked(service, packet, hash, tracking);
}

/* begin_on_moved_slot begins a flow that needs an entry, whichever backend has its slot. */
static __always_inline __u64 begin_on_moved_slot(const struct tracking *tracking)
{
	if (tracking->current == NO_BACKEND || !create_entry(tracking->current, FLOW_OPENING))
		return SELECTION_NONE;
	return selection_of(tracking->current, true);
}

/* select_moved_slot selects a backend for a packet without an entry, of a service that has entries only for flows of
 * moved slots. */
static __always_inline __u64 select_moved_slot(const struct service *service,
					       const struct packet *packet,
					       const struct tracking *tracking)
{
	enum outcome outcome = OUTCOME_NONE;

	if (packet->protocol == IPPROTO_UDP || opens_connection(packet))
		outcome = check_limits(service);
	if (outcome != OUTCOME_NONE)
		return fail_with(outcome);
	if (tracking->reused)
		return begin_reuse(service, tracking, begin_on_moved_slot(tracking));
	return tracking->moved ? select_between_owners(service, packet, tracking) : select_slot_backend(tracking, packet);
}

/* prove moves a flow to the proven ones. */
static __always_inline void prove(const struct service *service, const struct packet *packet)
{
	if (service->flags & SERVICE_PERSISTENT)
		prove_affinity(service);
	prove_flow(service, is_fullnat(service), packet->protocol);
}

/* lookup_or_select selects a packet's backend: by its flow's entry, or else as for a new flow. Scratch: reads packet
 * and tracking.sequence; writes tracking.source. */
static __always_inline __u64 lookup_or_select(const struct service *service,
					      struct scratch *scratch, __u32 hash)
{
	bool tracked = service->flags & SERVICE_TRACKED;
	__u64 selection = SELECTION_NONE;

	scratch->tracking.reused = 0;
	if (!tracked)
		lookup_slot(service, hash);
	if (tracked || scratch->tracking.moved)
		selection = lookup_flow(service, &scratch->packet);
	if (selection & SELECTION_PROVEN)
		prove(service, &scratch->packet);
	if ((selection & SELECTION_OPENS) && (service->flags & SERVICE_PERSISTENT))
		store_affinity();
	if (selection != SELECTION_NONE)
		return selection & ~SELECTION_PROVEN;
	if ((tracked || scratch->tracking.moved) && is_midstream(&scratch->packet) &&
	    flows_are_moving(current_generation()))
		return fail_with(OUTCOME_DROPPED_FLOWS_MOVING);
	return tracked ? begin_or_select_slot(service, &scratch->packet, hash, &scratch->tracking) :
			 select_moved_slot(service, &scratch->packet, &scratch->tracking);
}

/* peek_backend finds the backend of a packet that is only quoted, and changes no entry. Scratch: writes what
 * lookup_slot() does, the key in tracking.flow, and tracking.source. */
__noinline __u64 peek_backend(const struct service *service, const struct packet *packet,
			      __u32 hash)
{
	struct scratch *scratch = get_scratch();
	__u64 selection = SELECTION_NONE;
	struct flow *flow;
	__u32 place;

	if (!service || !packet || !scratch)
		return fail_with(OUTCOME_DROPPED_NO_BACKEND);
	lookup_slot(service, hash);
	if (!(service->flags & SERVICE_TRACKED) && !scratch->tracking.moved)
		return select_slot_backend(&scratch->tracking, packet);
	flow = &scratch->tracking.flow;
	flow_of(flow, packet, service->id);
	place = search_place(flow, hash_of(flow), true);
	if (place)
		selection = selection_at(place, true);
	/* The pending connection that reuses its 5-tuple may have a backend that is up. */
	if (selection & (SELECTION_NONE | SELECTION_FAILED)) {
		place = search_place(flow, hash_of(flow), false);
		if (place)
			selection = selection_at(place, false);
	}
	if (selection == SELECTION_NONE && is_fullnat(service))
		return fail_with(OUTCOME_DROPPED_NO_FLOW);
	return selection == SELECTION_NONE ? select_slot_backend(&scratch->tracking, packet) : selection;
}

/* lookup_proven looks up the proven flow of a packet of the fast path at every place. Scratch: writes tracking.flow. */
static __always_inline place_t lookup_proven(const struct service *service,
					     const struct packet *packet, __u64 hash)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return 0;
	flow_of(&scratch->tracking.flow, packet, service->id);
	return search_place(&scratch->tracking.flow, hash, true);
}

/* proven_backend returns, for the fast path, the backend of a proven flow whose state the packet does not change, or
 * NULL. */
static __always_inline struct backend *proven_backend(void *generation,
						      const struct service *service,
						      const struct packet *packet, bool ipv6,
						      const struct flow **flow)
{
	__u64 hash = hash_key(packet->source, packet->source_port, service->id, ipv6);
	struct flow_bucket *bucket;
	struct backend *owner;
	__u32 at, state;
	place_t place;
	bool search;

	place = find_place(true, true, hash, packet->source, packet->source_port, service->id, ipv6,
			   &search);
	if (search)
		place = lookup_proven(service, packet, hash);
	if (!place)
		return NULL;
	bucket = bucket_of(true, place);
	if (!bucket)
		return NULL;
	at = index_of(place);
	state = state_of(bucket, at);
	if (state != FLOW_ESTABLISHED && state != FLOW_UDP)
		return NULL;
	owner = owner_of(generation, &bucket->flows[at]);
	if (!owner || !owner->up)
		return NULL;
	note_seen(bucket, at, clock_of(generation));
	trace_add_reason(TRACE_KNOWN_FLOW);
	*flow = &bucket->flows[at];
	return owner;
}
