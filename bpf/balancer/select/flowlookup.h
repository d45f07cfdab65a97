/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Flow lookup: the backend of a packet whose flow has an entry, and the effect of a packet that may reuse the flow's
 * 5-tuple for a new connection. */
#pragma once

#include "affinity.h"
#include "selection.h"
#include "limits.h"
#include "../flow/prove.h"
#include "../scratch.h"

/* accepts_reopened reports whether a flow may be reopened with its backend: that accepts new flows, and the client has
 * no affinity to another. */
static __always_inline bool accepts_reopened(const struct service *service, const struct backend *owner)
{
	__u64 attached;

	if (!accepts_new_flows(owner))
		return false;
	if (!(service->flags & SERVICE_PERSISTENT))
		return true;
	attached = find_affinity(service);
	return attached == PICK_NONE || attached == owner->index;
}

/* reopen_flow reopens the entry of a full-NAT flow that has ended, with its backend and its port of the pool;
 * SELECTION_NONE where that is not possible. The backend holds the connection in TIME-WAIT: it accepts a SYN of the
 * same client as a new connection (RFC 6191), and would treat that of another client, which got the port meanwhile, as
 * an old duplicate. Scratch: reads what lookup_flow() writes; writes tracking.source. */
__noinline __u64 reopen_flow(const struct service *service, __u32 place, __u32 proven)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct flow_bucket *bucket = bucket_of(proven, place);
	__u32 at = index_of(place), state;
	struct tracking *tracking;
	struct backend *owner;
	enum outcome outcome;

	if (!service || !scratch || !bucket)
		return SELECTION_NONE;
	tracking = &scratch->tracking;
	state = state_of(bucket, at);
	owner = owner_of(generation, &bucket->flows[at]);
	if (!owner || !is_ended(state) || state == FLOW_REFUSED || !accepts_reopened(service, owner))
		return SELECTION_NONE;
	outcome = check_limits(service);
	if (outcome != OUTCOME_NONE)
		return fail_with(outcome);
	trace_add_reason(TRACE_KNOWN_FLOW);
	tracking->source = bucket->flows[at].source;
	if (dry_run())
		return owner->index | SELECTION_OPENS;
	if (!set_state(bucket, at, state, FLOW_OPENING))
		return SELECTION_NONE;
	note_change(bucket, at, clock_of(generation));
	count_flow(service->id, owner->index, 1);
	tracking->flow.backend = owner->index;
	tracking->flow.generation = owner->generation;
	return owner->index | SELECTION_OPENS;
}

/* reuse is the effect of a packet that may be the first of a new connection on the entry of its 5-tuple.
 * docs/internals/state.md has the table, and the possible effects of a spoofed packet. */
enum reuse {
	/* None: the packet is of the flow, or its backend may accept the next connection, too. */
	REUSE_NONE,
	/* The flow of the entry has ended, and is deleted. */
	REUSE_REPLACES,
	/* The flow may have ended, and its backend cannot accept the next connection: that is pending until it is
	 * proven. */
	REUSE_PENDING,
};

/* reuse_of_live is the effect of a SYN on a flow that has not ended. Full NAT stores no sequence number, but sees the
 * backend's RST and FIN. */
static __always_inline enum reuse reuse_of_live(const struct service *service,
						const struct found *found, __u32 state,
						const struct backend *owner, bool again)
{
	if (again || (owner->up && is_fullnat(service)) || accepts_new_flows(owner))
		return REUSE_NONE;
	if (is_fullnat(service) || (state != FLOW_ESTABLISHED && state != FLOW_CONTESTED))
		return REUSE_REPLACES;
	if (found->proven)
		return REUSE_PENDING;
	/* There was no room for the flow among the proven, so there is none for a pending connection beside it. */
	return owner->up ? REUSE_NONE : REUSE_REPLACES;
}

static __always_inline enum reuse reuse_of(const struct service *service,
					   const struct packet *packet,
					   const struct tracking *tracking,
					   const struct found *found,
					   const struct backend *owner)
{
	__u32 state = state_of(found->bucket, found->at);
	bool again;

	if (!opens_connection(packet))
		return packet->protocol == IPPROTO_UDP && !owner->up ? REUSE_REPLACES :
								       REUSE_NONE;
	/* A retransmission, or an old duplicate. */
	again = owner->up && !is_fullnat(service) &&
		found->bucket->flows[found->at].syn == tracking->sequence;
	if (!is_ended(state))
		return reuse_of_live(service, found, state, owner, again);
	return again && (state == FLOW_CLIENT_FIN || state == FLOW_BACKEND_FIN) ? REUSE_NONE :
										  REUSE_REPLACES;
}

/* find_pending looks up the pending connection that reuses the 5-tuple of the proven flow that was found, and returns
 * that instead if the packet is its own, or if the flow's backend was removed. */
static __always_inline void find_pending(void *generation, const struct service *service,
					 const struct packet *packet, struct tracking *tracking,
					 struct found *found)
{
	struct found pending = {};

	pending.place = search_place(&tracking->flow, tracking->flow_hash, false);
	if (!load_found(&pending)) {
		if (!dry_run())
			set_state(found->bucket, found->at, FLOW_CONTESTED, FLOW_ESTABLISHED);
		return;
	}
	if (!owner_of(generation, &found->bucket->flows[found->at]))
		end_flow(service, found, tracking->flow_hash);
	else if (opens_connection(packet) ||
		 follows_syn(tracking->sequence, pending.bucket->flows[pending.at].syn))
		tracking->reused = found->place;
	else
		return;
	*found = pending;
}

/* end_reused deletes the flow whose 5-tuple a connection reuses that is now proven. */
static __always_inline void end_reused(const struct service *service,
				       const struct tracking *tracking)
{
	struct found found = { .place = tracking->reused, .proven = true };

	found.at = index_of(found.place);
	found.bucket = bucket_of(true, found.place);
	if (found.bucket)
		delete_flow(&found, tracking->flow_hash, FLOW_CONTESTED,
			    service->flags & SERVICE_TRACKED);
}

/* init_key writes the key of the packet's flow, and the sequence number of its SYN. */
static __always_inline void init_key(struct tracking *tracking, const struct packet *packet,
				     const struct service *service)
{
	flow_of(&tracking->flow, packet, service->id);
	if (opens_connection(packet) && !is_fullnat(service))
		tracking->flow.syn = tracking->sequence;
	tracking->flow_hash = hash_of(&tracking->flow);
}

/* note_syn stores the sequence number of the last SYN that was sent to a flow's backend. */
static __always_inline void note_syn(const struct service *service, const struct packet *packet,
				     const struct tracking *tracking, struct flow *flow)
{
	if (opens_connection(packet) && !is_fullnat(service) && !dry_run())
		flow->syn = tracking->sequence;
}

/* note_backend_down updates a flow whose backend is down by a packet with which the client ends the flow; with
 * SERVICE_RESETS, by any packet. */
static __always_inline void note_backend_down(void *generation, const struct service *service,
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

/* lookup_flow selects a packet's backend by its flow's entry; SELECTION_NONE where there is none, or the flow has
 * ended, or its backend was removed, or cannot accept the connection that the packet may open: tracking.reused is then
 * the flow that stays until that connection is proven. With SELECTION_OPENS, the caller has to store the client's
 * affinity, and with SELECTION_PROVEN to prove the flow: from here that would not fit the stack. Scratch: reads
 * tracking.sequence, and tracking.reused as 0; writes that, the key in tracking.flow, tracking.flow_hash,
 * tracking.source, and with SELECTION_PROVEN tracking.place. */
__noinline __u64 lookup_flow(const struct service *service, const struct packet *packet)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	enum reuse reuse;
	struct backend *owner;
	struct found found;

	if (!service || !packet || !scratch)
		return fail_with(OUTCOME_DROPPED_NO_BACKEND);
	tracking = &scratch->tracking;
	init_key(tracking, packet, service);
	prefetch_buckets(tracking->flow_hash);
	if (!find_flow_inline(&tracking->flow, tracking->flow_hash, &found) &&
	    (opens_connection(packet) ||
	     !find_moved(&tracking->flow, tracking->flow_hash, &found)))
		return SELECTION_NONE;
	if (found.proven && state_of(found.bucket, found.at) == FLOW_CONTESTED)
		find_pending(generation, service, packet, tracking, &found);
	owner = owner_of(generation, &found.bucket->flows[found.at]);
	if (owner && is_fullnat(service) && opens_connection(packet) &&
	    is_ended(state_of(found.bucket, found.at))) {
		__u64 selection = reopen_flow(service, found.place, found.proven);

		if (selection != SELECTION_NONE)
			return selection;
	}
	reuse = owner ? reuse_of(service, packet, tracking, &found, owner) :
			    REUSE_REPLACES;
	if (reuse == REUSE_PENDING)
		tracking->reused = found.place;
	if (reuse == REUSE_REPLACES)
		end_flow(service, &found, tracking->flow_hash);
	if (reuse != REUSE_NONE || !owner)
		return SELECTION_NONE;
	if (is_ended(state_of(found.bucket, found.at)) && is_midstream(packet) && flows_are_moving(generation))
		return fail_with(OUTCOME_DROPPED_FLOWS_MOVING);
	if (!owner->up) {
		note_backend_down(generation, service, packet, &found, tracking->flow_hash);
		return fail_with(OUTCOME_DROPPED_BACKEND_DOWN);
	}
	trace_add_reason(TRACE_KNOWN_FLOW);
	tracking->source = found.bucket->flows[found.at].source;
	note_syn(service, packet, tracking, &found.bucket->flows[found.at]);
	if (!note_packet(generation, service, packet, &found, tracking->flow_hash))
		return owner->index;
	if (tracking->reused)
		end_reused(service, tracking);
	tracking->place = found.place;
	return owner->index | SELECTION_PROVEN;
}

/* selection_at returns the selection by the entry at a place, and does not update the entry; SELECTION_NONE where its
 * backend was removed. Scratch: writes tracking.source. */
__noinline __u64 selection_at(__u32 place, __u32 proven)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct flow_bucket *bucket;
	struct backend *owner;

	if (!scratch)
		return SELECTION_NONE;
	bucket = bucket_of(proven, place);
	if (!bucket || state_of(bucket, index_of(place)) == FLOW_FREE)
		return SELECTION_NONE;
	owner = owner_of(generation, &bucket->flows[index_of(place)]);
	if (!owner)
		return SELECTION_NONE;
	scratch->tracking.source = bucket->flows[index_of(place)].source;
	return owner->up ? owner->index : fail_with(OUTCOME_DROPPED_BACKEND_DOWN);
}
