/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The backend of a packet whose flow has an entry; and the effect of a packet that may be the first of another
 * connection. */
#pragma once

#include "affinity.h"
#include "choice.h"
#include "limits.h"
#include "../flow/prove.h"
#include "../scratch.h"

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
 * take that of another, who got the port meanwhile, for a stray. Scratch: takes what
 * recall_flow() leaves; leaves tracking.source. */
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
	tracking->source = bucket->flows[at].source;
	if (dry_run())
		return owner->index | CHOICE_OPENS;
	if (!set_state(bucket, at, state, FLOW_OPENING))
		return CHOICE_OPEN;
	note_change(bucket, at, clock_of(generation));
	count_flow(service->id, owner->index, 1);
	tracking->flow.backend = owner->index;
	tracking->flow.generation = owner->generation;
	return owner->index | CHOICE_OPENS;
}

/* beginning is the effect that a packet that may be the first of a flow has on the entry of its key.
 * docs/internals/state.md has the table, and the harm that a forged packet can do by it. */
enum beginning {
	/* The packet is the flow's own, or its backend may take the next connection, too. */
	BEGINS_NOTHING,
	/* The flow of the entry is over. */
	BEGINS_ANOTHER,
	/* The flow may be over, and its backend cannot take the next connection: that has to prove itself. */
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
	/* There was no room for the flow among the proven, and beside it there is none for a rival. */
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
		found->bucket->flows[found->at].syn == tracking->sequence;
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
		 follows(tracking->sequence, rival.bucket->flows[rival.at].syn))
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

/* begin_key writes the key of the packet's flow, and the sequence number of its SYN. */
static __always_inline void begin_key(struct tracking *tracking, const struct packet *packet,
				      const struct service *service)
{
	flow_of(&tracking->flow, packet, service->id);
	if (opens_connection(packet) && !is_fullnat(service))
		tracking->flow.syn = tracking->sequence;
	tracking->flow_hash = hash_of(&tracking->flow);
}

/* note_syn keeps which SYN a flow's backend got last. */
static __always_inline void note_syn(const struct service *service, const struct packet *packet,
				     const struct tracking *tracking, struct flow *flow)
{
	if (opens_connection(packet) && !is_fullnat(service) && !dry_run())
		flow->syn = tracking->sequence;
}

/* note_down notes a packet of a flow whose backend is down: one by which the client ends the
 * flow, and where such flows are reset any other. */
static __always_inline void note_down(void *generation, const struct service *service,
				      const struct packet *packet, const struct found *found,
				      __u64 hash)
{
	__u32 state = state_of(found->bucket, found->at);

	if (packet->tcp_flags & (TCP_FIN | TCP_RST))
		note_packet(generation, service, packet, found, hash);
	else if ((service->flags & SERVICE_RESETS) && is_live(state) && state != FLOW_CONTESTED &&
		 !dry_run())
		enter_state(found->bucket, found->at, state, FLOW_CLOSED,
			    service->flags & SERVICE_TRACKED);
}

/* recall_flow chooses for a packet by its flow's entry; CHOICE_OPEN where there is none, or the flow has ended, or its
 * backend has left, or cannot take the connection that the packet may begin: tracking.contested is then the flow that
 * stays meanwhile. With CHOICE_OPENS, the client's affinity is yet to be kept, and with CHOICE_PROVEN the flow's proof:
 * from further down it would not fit the stack. Scratch: takes tracking.sequence, and tracking.contested as 0; leaves
 * that, the key in tracking.flow, tracking.flow_hash, tracking.source, and with CHOICE_PROVEN tracking.place. */
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
	if (is_ended(state_of(found.bucket, found.at)) && goes_on(packet) && flows_move(generation))
		return fail_with(OUTCOME_DROPPED_FLOWS_MOVING);
	if (!owner->up) {
		note_down(generation, service, packet, &found, tracking->flow_hash);
		return fail_with(OUTCOME_DROPPED_BACKEND_DOWN);
	}
	trace_because(TRACE_KNOWN_FLOW);
	tracking->source = found.bucket->flows[found.at].source;
	note_syn(service, packet, tracking, &found.bucket->flows[found.at]);
	if (!note_packet(generation, service, packet, &found, tracking->flow_hash))
		return owner->index;
	if (tracking->contested)
		end_contested(service, tracking);
	tracking->place = found.place;
	return owner->index | CHOICE_PROVEN;
}

/* choice_at chooses for a flow that was found, and notes nothing; CHOICE_OPEN where its
 * backend has left. Scratch: leaves tracking.source. */
__noinline __u64 choice_at(__u32 place, __u32 proven)
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
	scratch->tracking.source = bucket->flows[within(place)].source;
	return owner->up ? owner->index : fail_with(OUTCOME_DROPPED_BACKEND_DOWN);
}
