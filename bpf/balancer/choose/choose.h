/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which backend a packet of a service goes to, where that is more than a function of
 * the packet: flows that are remembered, and slots that have changed hands. The steps
 * are functions by themselves, one after the other: one below the other they would not
 * fit the stack. */
#pragma once

#include "../flow/evict.h"
#include "../../lib/hash.h"
#include "schedule.h"
#include "../flow/track.h"

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

	base = member_of(generation, pair(&service->base), hash_scale(hash, service->base_size));
	if (!base || (now && base->index == now->index && base->generation == now->generation))
		return;
	if (base->up)
		tracking->before = base->index;
	else
		tracking->orphaned = true;
}

/* look_up looks a packet's slot up: tracking->now, before, orphaned and moved. */
__noinline int look_up(const struct service *service, __u32 hash)
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
	if (tracking->moved && (service->flags & SERVICE_BASE))
		look_before(generation, service, hash, now, tracking);
	return 0;
}

static __always_inline __u64 choice_of(__u32 index, bool opens)
{
	if (index == NO_BACKEND)
		return fail_with(OUTCOME_DROPPED_NO_BACKEND);
	return index | (opens ? CHOICE_OPENS : 0);
}

/* by_hash is the choice where nothing is remembered, nor is to be. */
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

/* between decides where a slot has changed hands and its flow is not remembered: an
 * opening packet begins with the new owner, and what was there before stays with the
 * former. Both are remembered, for the base table will go. Where the former has left,
 * whoever begins is remembered too, or the next change of the slot would take him for
 * one of the former's. */
static __always_inline __u64 between(const struct packet *packet,
				     const struct tracking *tracking)
{
	bool opens = opens_connection(packet), udp = packet->protocol == IPPROTO_UDP;

	if (tracking->now == NO_BACKEND ||
	    (tracking->before == NO_BACKEND && !tracking->orphaned))
		return by_hash(tracking, packet);
	if (opens && remember(tracking->now, FLOW_OPENING))
		return choice_of(tracking->now, true);
	if (tracking->before == NO_BACKEND && udp)
		remember(tracking->now, FLOW_FIRST);
	else if (tracking->before != NO_BACKEND && !opens && !(packet->tcp_flags & TCP_RST))
		remember(tracking->before, udp ? FLOW_FIRST : FLOW_SEEN);
	return by_hash(tracking, packet);
}

/* attached_to is the backend of a service that an affinity leads to, or NULL. */
static __always_inline struct backend *attached_to(void *generation, const struct service *service,
						   const struct flow *affinity)
{
	__u64 index;

	if (!(service->flags & SERVICE_GROUPED))
		return owner_of(generation, affinity);
	index = backend_of_host(service, affinity->backend | (__u64)affinity->generation << 32);
	return index < PICK_NONE ? backend_at(generation, index) : NULL;
}

/* takes_new says whether a backend takes new flows. */
static __always_inline bool takes_new(const struct backend *owner)
{
	struct backend_load *load;

	if (!owner->up || !owner->weight)
		return false;
	load = load_of(owner->index);
	return !load || !is_full(load);
}

/* find_affinity says where a client's flows go: the backend's index, or PICK_NONE where
 * that is not known, or may take no new flow. */
__noinline __u64 find_affinity(const struct service *service)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	struct backend *owner;
	struct found found;

	if (!service || !scratch)
		return PICK_NONE;
	tracking = &scratch->tracking;
	if (!client_of(generation, &tracking->client, &tracking->flow, service))
		return PICK_NONE;
	tracking->client_hash = hash_of(&tracking->client);
	if (!find_flow(&tracking->client, tracking->client_hash, &found))
		return PICK_NONE;
	owner = attached_to(generation, service, &found.bucket->flows[found.at]);
	return owner && takes_new(owner) ? owner->index : PICK_NONE;
}

/* aim_affinity writes into the affinity of struct tracking where its flow went; false where
 * there is none to keep. */
static __always_inline bool aim_affinity(void *generation, struct tracking *tracking)
{
	struct flow *client = &tracking->client;
	struct backend *owner;
	__u64 number;

	if (!(client->service & FLOW_KEY_AFFINITY))
		return false;
	client->backend = tracking->flow.backend;
	client->generation = tracking->flow.generation;
	if (!(client->service & FLOW_KEY_GROUP))
		return true;
	owner = backend_at(generation, tracking->flow.backend);
	if (!owner)
		return false;
	number = host_number(owner);
	client->backend = number;
	client->generation = number >> 32;
	return true;
}

/* keep_affinity remembers where the flow of struct tracking went, for its client's
 * next. */
__noinline int keep_affinity(void)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	struct found found;
	struct flow *flow;

	if (!scratch || dry_run())
		return 0;
	tracking = &scratch->tracking;
	if (!aim_affinity(generation, tracking))
		return 0;
	if (find_flow(&tracking->client, tracking->client_hash, &found)) {
		flow = &found.bucket->flows[found.at];
		if (flow->backend == tracking->client.backend &&
		    flow->generation == tracking->client.generation) {
			note_seen(found.bucket, found.at, clock_of(generation));
			return 0;
		}
		remove_flow(found.place, tracking->client_hash, found.proven);
	}
	return insert_flow(&tracking->client, tracking->client_hash, false, FLOW_AFFINITY_NEW,
			   clock_of(generation));
}

/* is_fullnat says whether a flow must be remembered, or cannot be. */
static __always_inline bool is_fullnat(const struct service *service)
{
	return has_mode(MODE_FULLNAT) && service->mode == MODE_FULLNAT;
}

/* takes_again says whether a backend may have a flow again that it had: it takes new ones,
 * and the client's are not to go to another. */
static __always_inline bool takes_again(const struct service *service, const struct backend *owner)
{
	__u64 attached;

	if (!takes_new(owner))
		return false;
	if (!(service->flags & SERVICE_PERSISTENT))
		return true;
	attached = find_affinity(service);
	return attached == PICK_NONE || attached == owner->index;
}

/* reopen_flow begins a flow of full NAT that has ended where it was, with its backend and
 * its port of the pool; CHOICE_OPEN where that cannot be. The backend holds the connection
 * in TIME-WAIT: it takes a SYN of the same client for the next one (RFC 6191), and would
 * take that of another, who got the port meanwhile, for a stray. */
__noinline __u64 reopen_flow(const struct service *service, __u32 place, __u32 proven)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct flow_bucket *bucket = bucket_of(proven, place);
	__u32 at = within(place), state;
	struct tracking *tracking;
	struct backend *owner;
	enum outcome outcome;

	if (!service || !scratch || !bucket)
		return CHOICE_OPEN;
	tracking = &scratch->tracking;
	state = state_of(bucket, at);
	owner = owner_of(generation, &bucket->flows[at]);
	if (!owner || !is_ended(state) || state == FLOW_REFUSED || !takes_again(service, owner))
		return CHOICE_OPEN;
	outcome = refused(service);
	if (outcome != OUTCOME_NONE)
		return fail_with(outcome);
	trace_because(TRACE_KNOWN_FLOW);
	tracking->nat_port = bucket->flows[at].nat_port;
	tracking->nat_address = bucket->flows[at].nat_address;
	if (dry_run())
		return owner->index | CHOICE_OPENS;
	if (!set_state(bucket, at, state, FLOW_OPENING))
		return CHOICE_OPEN;
	note_seen(bucket, at, clock_of(generation));
	count_flow(service->id, owner->index, 1);
	tracking->flow.backend = owner->index;
	tracking->flow.generation = owner->generation;
	return owner->index | CHOICE_OPENS;
}

/* beginning is what a packet that may be the first of a flow makes of the entry of its key.
 * docs/state.md has the table, and what a stranger can do by it. */
enum beginning {
	/* It is the flow's own, or its backend may have the next one too. */
	BEGINS_NOTHING,
	/* The entry is over. */
	BEGINS_ANOTHER,
	/* It may be, and its backend cannot have the next one: that has to prove itself. */
	BEGINS_RIVAL,
};

/* beginning_of_live decides for a SYN and a flow that has not ended. Full NAT has no
 * sequence number to tell by, and sees the backend's RST and FIN. */
static __always_inline enum beginning beginning_of_live(const struct service *service,
							const struct found *found, __u32 state,
							const struct backend *owner, bool again)
{
	if (again || (owner->up && is_fullnat(service)) || takes_new(owner))
		return BEGINS_NOTHING;
	if (is_fullnat(service) || (state != FLOW_ESTABLISHED && state != FLOW_CONTESTED))
		return BEGINS_ANOTHER;
	if (found->proven)
		return BEGINS_RIVAL;
	/* There was no room for it among the proven, and beside it is none for another. */
	return owner->up ? BEGINS_NOTHING : BEGINS_ANOTHER;
}

static __always_inline enum beginning beginning_of(const struct service *service,
						   const struct packet *packet,
						   const struct tracking *tracking,
						   const struct found *found,
						   const struct backend *owner)
{
	__u32 state = state_of(found->bucket, found->at);
	bool again;

	if (!opens_connection(packet))
		return packet->protocol == IPPROTO_UDP && !owner->up ? BEGINS_ANOTHER :
								       BEGINS_NOTHING;
	/* Sent once more, or late. */
	again = owner->up && !is_fullnat(service) &&
		opened_with(&found->bucket->flows[found->at]) == tracking->sequence;
	if (!is_ended(state))
		return beginning_of_live(service, found, state, owner, again);
	return again && (state == FLOW_CLIENT_FIN || state == FLOW_BACKEND_FIN) ? BEGINS_NOTHING :
										  BEGINS_ANOTHER;
}

/* find_rival looks for the connection that contests the proven flow that was found, and
 * finds that instead if the packet is its own, or if there is no other. */
static __always_inline void find_rival(void *generation, const struct service *service,
				       const struct packet *packet, struct tracking *tracking,
				       struct found *found)
{
	struct found rival = {};

	rival.place = search_place(&tracking->flow, tracking->flow_hash, false);
	if (!see_flow(&rival)) {
		if (!dry_run())
			set_state(found->bucket, found->at, FLOW_CONTESTED, FLOW_ESTABLISHED);
		return;
	}
	if (!owner_of(generation, &found->bucket->flows[found->at]))
		end_flow(service, found, tracking->flow_hash);
	else if (opens_connection(packet) ||
		 follows(tracking->sequence, opened_with(&rival.bucket->flows[rival.at])))
		tracking->contested = found->place;
	else
		return;
	*found = rival;
}

/* end_contested forgets the flow whose rival has proven itself. */
static __always_inline void end_contested(const struct service *service,
					  const struct tracking *tracking)
{
	struct found found = { .place = tracking->contested, .proven = true };

	found.at = within(found.place);
	found.bucket = bucket_of(true, found.place);
	if (found.bucket)
		forget_flow(&found, tracking->flow_hash, FLOW_CONTESTED,
			    service->flags & SERVICE_TRACKED);
}

/* begin_key writes the key of the packet's flow into the scratch memory, and what is to be
 * remembered of its SYN. */
static __always_inline void begin_key(struct tracking *tracking, const struct packet *packet,
				      const struct service *service)
{
	flow_of(&tracking->flow, packet, service->id);
	if (opens_connection(packet) && !is_fullnat(service))
		open_with(&tracking->flow, tracking->sequence);
	tracking->flow_hash = hash_of(&tracking->flow);
}

/* note_syn keeps which SYN a flow's backend got last. */
static __always_inline void note_syn(const struct service *service, const struct packet *packet,
				     const struct tracking *tracking, struct flow *flow)
{
	if (opens_connection(packet) && !is_fullnat(service) && !dry_run())
		open_with(flow, tracking->sequence);
}

/* recall_flow chooses for a packet of a remembered flow; CHOICE_OPEN where there is none,
 * or it has ended, or its backend has left, or cannot take what the packet may begin:
 * tracking->contested is then the flow that stays meanwhile. With CHOICE_OPENS, the client's
 * affinity is yet to be kept: from further down it would not fit the stack. */
__noinline __u64 recall_flow(const struct service *service, const struct packet *packet)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	enum beginning beginning;
	struct backend *owner;
	struct found found;

	if (!service || !packet || !scratch)
		return fail_with(OUTCOME_DROPPED_NO_BACKEND);
	tracking = &scratch->tracking;
	begin_key(tracking, packet, service);
	touch(tracking->flow_hash);
	if (!find_flow_inline(&tracking->flow, tracking->flow_hash, &found) &&
	    (opens_connection(packet) ||
	     !find_moved(&tracking->flow, tracking->flow_hash, &found)))
		return CHOICE_OPEN;
	if (found.proven && state_of(found.bucket, found.at) == FLOW_CONTESTED)
		find_rival(generation, service, packet, tracking, &found);
	owner = owner_of(generation, &found.bucket->flows[found.at]);
	if (owner && is_fullnat(service) && opens_connection(packet) &&
	    is_ended(state_of(found.bucket, found.at))) {
		__u64 choice = reopen_flow(service, found.place, found.proven);

		if (choice != CHOICE_OPEN)
			return choice;
	}
	beginning = owner ? beginning_of(service, packet, tracking, &found, owner) :
			    BEGINS_ANOTHER;
	if (beginning == BEGINS_RIVAL)
		tracking->contested = found.place;
	if (beginning == BEGINS_ANOTHER)
		end_flow(service, &found, tracking->flow_hash);
	if (beginning != BEGINS_NOTHING || !owner)
		return CHOICE_OPEN;
	if (!owner->up) {
		if (packet->tcp_flags & (TCP_FIN | TCP_RST))
			note_packet(generation, service, packet, &found, tracking->flow_hash);
		return fail_with(OUTCOME_DROPPED_BACKEND_DOWN);
	}
	trace_because(TRACE_KNOWN_FLOW);
	tracking->nat_port = found.bucket->flows[found.at].nat_port;
	tracking->nat_address = found.bucket->flows[found.at].nat_address;
	note_syn(service, packet, tracking, &found.bucket->flows[found.at]);
	if (!note_packet(generation, service, packet, &found, tracking->flow_hash))
		return owner->index;
	if (tracking->contested)
		end_contested(service, tracking);
	tracking->place = found.place;
	return owner->index | CHOICE_PROVEN;
}

/* choose_new picks the backend of a new flow, within the service's limits. */
static __always_inline __u64 choose_new(const struct service *service, __u32 hash)
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

/* must_remember says whether a flow that is not remembered cannot be. */
static __always_inline bool must_remember(const struct service *service)
{
	return (service->flags & SERVICE_LIMITED) || is_fullnat(service);
}

/* remember_new remembers a new flow, if need be in another's place. */
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
	__u64 choice = choose_new(service, hash);
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

/* by_slot is the choice for a packet whose flow is not, and will not be, remembered. */
static __always_inline __u64 by_slot(const struct service *service, const struct packet *packet,
				     __u32 hash, const struct tracking *tracking)
{
	look_up(service, hash);
	return by_hash(tracking, packet);
}

/* owner_at chooses for a flow that was found, and notes nothing; CHOICE_OPEN where its
 * backend has left. */
__noinline __u64 owner_at(__u32 place, __u32 proven)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct flow_bucket *bucket;
	struct backend *owner;

	if (!scratch)
		return CHOICE_OPEN;
	bucket = bucket_of(proven, place);
	if (!bucket || state_of(bucket, within(place)) == FLOW_FREE)
		return CHOICE_OPEN;
	owner = owner_of(generation, &bucket->flows[within(place)]);
	if (!owner)
		return CHOICE_OPEN;
	scratch->tracking.nat_port = bucket->flows[within(place)].nat_port;
	scratch->tracking.nat_address = bucket->flows[within(place)].nat_address;
	return owner->up ? owner->index : fail_with(OUTCOME_DROPPED_BACKEND_DOWN);
}

/* contest ends what was begun for a SYN that contests a proven flow: that is marked, so
 * that its packets are told from the rival's. Where no rival could be remembered, the SYN
 * is the flow's. */
static __always_inline __u64 contest(const struct service *service,
				     const struct tracking *tracking, __u64 choice)
{
	struct flow_bucket *bucket = bucket_of(true, tracking->contested);

	if (choice == CHOICE_OPEN)
		return service->table_size ? owner_at(tracking->contested, true) :
					     fail_with(OUTCOME_DROPPED_NO_BACKEND);
	if (bucket && !(choice & CHOICE_FAILED) && !dry_run())
		set_state(bucket, within(tracking->contested), FLOW_ESTABLISHED, FLOW_CONTESTED);
	return choice;
}

/* choose_unknown chooses for a packet of a service that remembers flows, and not this
 * one. */
static __always_inline __u64 choose_unknown(const struct service *service,
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

/* begin_moved begins a flow that must be remembered, whatever became of its slot. */
static __always_inline __u64 begin_moved(const struct tracking *tracking)
{
	if (tracking->now == NO_BACKEND || !remember(tracking->now, FLOW_OPENING))
		return CHOICE_OPEN;
	return choice_of(tracking->now, true);
}

/* choose_by_slot chooses for a packet of a service that remembers moved flows only, where
 * none is. */
static __always_inline __u64 choose_by_slot(const struct service *service,
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
	return tracking->moved ? between(packet, tracking) : by_hash(tracking, packet);
}

/* prove keeps a flow's proof. */
static __always_inline void prove(const struct service *service, const struct packet *packet)
{
	if (service->flags & SERVICE_PERSISTENT)
		prove_client(service);
	prove_flow(service, is_fullnat(service), packet->protocol);
}

/* choose_tracked chooses for the packet in the scratch memory. */
static __always_inline __u64 choose_tracked(const struct service *service,
					    struct scratch *scratch, __u32 hash)
{
	bool tracked = service->flags & SERVICE_TRACKED;
	__u64 choice = CHOICE_OPEN;

	scratch->tracking.contested = 0;
	if (!tracked)
		look_up(service, hash);
	if (tracked || scratch->tracking.moved)
		choice = recall_flow(service, &scratch->packet);
	if (choice & CHOICE_PROVEN)
		prove(service, &scratch->packet);
	if ((choice & CHOICE_OPENS) && (service->flags & SERVICE_PERSISTENT))
		keep_affinity();
	if (choice != CHOICE_OPEN)
		return choice & ~CHOICE_PROVEN;
	return tracked ? choose_unknown(service, &scratch->packet, hash, &scratch->tracking) :
			 choose_by_slot(service, &scratch->packet, &scratch->tracking);
}

/* choose_quietly is for a packet that only tells of a flow. */
__noinline __u64 choose_quietly(const struct service *service, const struct packet *packet,
				__u32 hash)
{
	struct scratch *scratch = get_scratch();
	__u64 choice = CHOICE_OPEN;
	struct flow *flow;
	__u32 place;

	if (!service || !packet || !scratch)
		return fail_with(OUTCOME_DROPPED_NO_BACKEND);
	look_up(service, hash);
	if (!(service->flags & SERVICE_TRACKED) && !scratch->tracking.moved)
		return by_hash(&scratch->tracking, packet);
	flow = &scratch->tracking.flow;
	flow_of(flow, packet, service->id);
	place = search_place(flow, hash_of(flow), true);
	if (place)
		choice = owner_at(place, true);
	/* One that contests it may be where packets can be sent. */
	if (choice & (CHOICE_OPEN | CHOICE_FAILED)) {
		place = search_place(flow, hash_of(flow), false);
		if (place)
			choice = owner_at(place, false);
	}
	if (choice == CHOICE_OPEN && is_fullnat(service))
		return fail_with(OUTCOME_DROPPED_NO_FLOW);
	return choice == CHOICE_OPEN ? by_hash(&scratch->tracking, packet) : choice;
}

/* choose_known is for the common way: the backend of a flow that has proven itself and
 * that this packet changes nothing about, or NULL. */
static __always_inline struct backend *choose_known(void *generation,
						    const struct service *service,
						    const struct packet *packet, bool ipv6,
						    const struct flow **flow)
{
	__u64 hash = hash_key(packet->source, packet->source_port, service->id, ipv6);
	place_t place = find_place(true, true, hash, packet->source, packet->source_port,
				   service->id, ipv6);
	struct flow_bucket *bucket;
	struct backend *owner;
	__u32 at, state;

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
