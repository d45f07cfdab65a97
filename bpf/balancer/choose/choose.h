/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which backend a packet of a service goes to, where that is more than a function of
 * the packet: flows that are remembered, and slots that have changed hands. The steps
 * are functions by themselves, one after the other: one below the other they would not
 * fit the stack. */
#pragma once

#include "limits.h"
#include "recall.h"
#include "schedule.h"
#include "slot.h"
#include "../flow/evict.h"
#include "../flow/poolport.h"
#include "../flow/prove.h"

/* pick_for_new picks the backend of a new flow, within the service's limits. */
static __always_inline __u64 pick_for_new(const struct service *service, __u32 hash)
{
	enum outcome outcome = refused(service);
	__u64 index = PICK_NONE;

	if (outcome != OUTCOME_NONE)
		return fail_with(outcome);
	if (service->flags & SERVICE_PERSISTENT)
		index = find_affinity(service);
	if (index == PICK_NONE)
		index = pick_backend(service, hash);
	if (index == PICK_FULL)
		return fail_with(OUTCOME_DROPPED_CONNECTION_LIMIT);
	return index == PICK_NONE ? CHOICE_OPEN : index;
}

/* must_remember says whether a service's flow cannot exist without an entry. */
static __always_inline bool must_remember(const struct service *service)
{
	return (service->flags & SERVICE_LIMITED) || is_fullnat(service);
}

/* remember_new makes an entry for a new flow, if need be in another's place. */
static __always_inline bool remember_new(const struct service *service, __u32 index, __u32 state,
					 const struct tracking *tracking)
{
	return remember(index, state) ||
	       (must_remember(service) && make_room(tracking->flow_hash) &&
		remember(index, state));
}

/* begin_flow begins a flow of a service that remembers them; CHOICE_OPEN where it cannot
 * be remembered and need not be. */
static __always_inline __u64 begin_flow(const struct service *service,
					const struct packet *packet, __u32 hash,
					const struct tracking *tracking)
{
	__u64 choice = pick_for_new(service, hash);
	enum outcome outcome;

	if (choice & (CHOICE_FAILED | CHOICE_OPEN))
		return choice;
	if (!remember_new(service, choice, first_state(packet), tracking))
		return must_remember(service) ? fail_with(OUTCOME_DROPPED_FLOW_TABLE_FULL) :
						CHOICE_OPEN;
	if (is_fullnat(service)) {
		outcome = nat_begin(service, hash_flow(packet));
		if (outcome != OUTCOME_NONE)
			return fail_with(outcome);
	}
	if (!dry_run())
		count_flow(service->id, choice, 1);
	if (service->flags & SERVICE_PERSISTENT)
		keep_affinity();
	trace_because(TRACE_NEW_FLOW);
	return choice | CHOICE_OPENS;
}

/* note_unremembered notes that a packet goes to a backend by the hash though its service tracks flows: the backend's
 * replies belong to no entry. */
static __always_inline void note_unremembered(const struct service *service,
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

/* by_slot is the choice for a packet whose flow has no entry, and gets none. */
static __always_inline __u64 by_slot(const struct service *service, const struct packet *packet,
				     __u32 hash, const struct tracking *tracking)
{
	note_unremembered(service, packet);
	look_slot_up(service, hash);
	return by_hash(tracking, packet);
}

/* contest completes the choice for a SYN that contests a proven flow: the mark on the flow separates its packets
 * from the rival's. Where there was no room for the rival's entry, the SYN counts as the flow's. */
static __always_inline __u64 contest(const struct service *service,
				     const struct tracking *tracking, __u64 choice)
{
	struct flow_bucket *bucket = bucket_of(true, tracking->contested);

	if (choice == CHOICE_OPEN)
		return service->table_size ? choice_at(tracking->contested, true) :
					     fail_with(OUTCOME_DROPPED_NO_BACKEND);
	if (bucket && !(choice & CHOICE_FAILED) && !dry_run())
		set_state(bucket, within(tracking->contested), FLOW_ESTABLISHED, FLOW_CONTESTED);
	return choice;
}

/* begin_or_follow_slot chooses for a packet of a service that remembers flows, and not this
 * one: it begins the flow, or goes by the slot. */
static __always_inline __u64 begin_or_follow_slot(const struct service *service,
						  const struct packet *packet, __u32 hash,
						  const struct tracking *tracking)
{
	bool fresh = packet->protocol == IPPROTO_UDP || opens_connection(packet);
	__u64 choice = fresh ? begin_flow(service, packet, hash, tracking) : CHOICE_OPEN;

	if (tracking->contested)
		return contest(service, tracking, choice);
	if (choice != CHOICE_OPEN)
		return choice;
	if (is_fullnat(service))
		return fail_with(fresh ? OUTCOME_DROPPED_NO_BACKEND : OUTCOME_DROPPED_NO_FLOW);
	return by_slot(service, packet, hash, tracking);
}

/* begin_moved begins a flow that must have an entry, whoever owns its slot. */
static __always_inline __u64 begin_moved(const struct tracking *tracking)
{
	if (tracking->now == NO_BACKEND || !remember(tracking->now, FLOW_OPENING))
		return CHOICE_OPEN;
	return choice_of(tracking->now, true);
}

/* follow_moved_slot chooses for a packet of a service that has entries only for flows of moved slots, where the
 * packet's has none. */
static __always_inline __u64 follow_moved_slot(const struct service *service,
					       const struct packet *packet,
					       const struct tracking *tracking)
{
	enum outcome outcome = OUTCOME_NONE;

	if (packet->protocol == IPPROTO_UDP || opens_connection(packet))
		outcome = refused(service);
	if (outcome != OUTCOME_NONE)
		return fail_with(outcome);
	if (tracking->contested)
		return contest(service, tracking, begin_moved(tracking));
	return tracking->moved ? between_owners(service, packet, tracking) : by_hash(tracking, packet);
}

/* prove moves a flow to the proven ones. */
static __always_inline void prove(const struct service *service, const struct packet *packet)
{
	if (service->flags & SERVICE_PERSISTENT)
		prove_client(service);
	prove_flow(service, is_fullnat(service), packet->protocol);
}

/* recall_or_choose chooses for a packet: by its flow's entry, or else anew. Scratch: takes packet and
 * tracking.sequence; leaves tracking.source. */
static __always_inline __u64 recall_or_choose(const struct service *service,
					      struct scratch *scratch, __u32 hash)
{
	bool tracked = service->flags & SERVICE_TRACKED;
	__u64 choice = CHOICE_OPEN;

	scratch->tracking.contested = 0;
	if (!tracked)
		look_slot_up(service, hash);
	if (tracked || scratch->tracking.moved)
		choice = recall_flow(service, &scratch->packet);
	if (choice & CHOICE_PROVEN)
		prove(service, &scratch->packet);
	if ((choice & CHOICE_OPENS) && (service->flags & SERVICE_PERSISTENT))
		keep_affinity();
	if (choice != CHOICE_OPEN)
		return choice & ~CHOICE_PROVEN;
	if ((tracked || scratch->tracking.moved) && goes_on(&scratch->packet) &&
	    flows_move(current_generation()))
		return fail_with(OUTCOME_DROPPED_FLOWS_MOVING);
	return tracked ? begin_or_follow_slot(service, &scratch->packet, hash, &scratch->tracking) :
			 follow_moved_slot(service, &scratch->packet, &scratch->tracking);
}

/* peek_choice finds the backend of a packet that is only quoted, and changes no entry. Scratch: leaves what
 * look_slot_up() does, the key in tracking.flow, and tracking.source. */
__noinline __u64 peek_choice(const struct service *service, const struct packet *packet,
			     __u32 hash)
{
	struct scratch *scratch = get_scratch();
	__u64 choice = CHOICE_OPEN;
	struct flow *flow;
	__u32 place;

	if (!service || !packet || !scratch)
		return fail_with(OUTCOME_DROPPED_NO_BACKEND);
	look_slot_up(service, hash);
	if (!(service->flags & SERVICE_TRACKED) && !scratch->tracking.moved)
		return by_hash(&scratch->tracking, packet);
	flow = &scratch->tracking.flow;
	flow_of(flow, packet, service->id);
	place = search_place(flow, hash_of(flow), true);
	if (place)
		choice = choice_at(place, true);
	/* The flow that contests it may have a backend that packets can be sent to. */
	if (choice & (CHOICE_OPEN | CHOICE_FAILED)) {
		place = search_place(flow, hash_of(flow), false);
		if (place)
			choice = choice_at(place, false);
	}
	if (choice == CHOICE_OPEN && is_fullnat(service))
		return fail_with(OUTCOME_DROPPED_NO_FLOW);
	return choice == CHOICE_OPEN ? by_hash(&scratch->tracking, packet) : choice;
}

/* search_proven looks for the proven flow of a packet of the fast path wherever it may be.
 * Scratch: leaves tracking.flow. */
static __always_inline place_t search_proven(const struct service *service,
					     const struct packet *packet, __u64 hash)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return 0;
	flow_of(&scratch->tracking.flow, packet, service->id);
	return search_place(&scratch->tracking.flow, hash, true);
}

/* proven_owner is, for the fast path, the backend of a proven flow whose state the packet does not change, or NULL. */
static __always_inline struct backend *proven_owner(void *generation,
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
		place = search_proven(service, packet, hash);
	if (!place)
		return NULL;
	bucket = bucket_of(true, place);
	if (!bucket)
		return NULL;
	at = within(place);
	state = state_of(bucket, at);
	if (state != FLOW_ESTABLISHED && state != FLOW_UDP)
		return NULL;
	owner = owner_of(generation, &bucket->flows[at]);
	if (!owner || !owner->up)
		return NULL;
	note_seen(bucket, at, clock_of(generation));
	trace_because(TRACE_KNOWN_FLOW);
	*flow = &bucket->flows[at];
	return owner;
}
