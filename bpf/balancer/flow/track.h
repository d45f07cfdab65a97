/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connection tracking: the states of flows, and the packets that begin, move and end them. */
#pragma once

#include "flowtable.h"
#include "refusal.h"
#include "../maps.h"
#include "../scratch.h"
#include "../trace.h"
#include "../parse.h"

/* is_live reports whether neither end has closed a flow. */
static __always_inline bool is_live(__u32 state)
{
	return state >= FLOW_OPENING && state <= FLOW_UDP;
}

static __always_inline bool is_ended(__u32 state)
{
	return state >= FLOW_CLIENT_FIN && state <= FLOW_TIME_WAIT;
}

/* flows_are_moving reports whether flows are still being copied into tables that are already in use. A flow that began
 * in the old tables since the last copy has no entry yet, or the entry of an earlier flow with its key: if its packets
 * were forwarded meanwhile, another backend would reset it. */
static __always_inline bool flows_are_moving(void *generation)
{
	__u64 until = head_of(generation)->moving;

	return __builtin_expect(until != 0, 0) && bpf_ktime_get_ns() < until;
}

/* is_midstream reports whether a packet is in the middle of a TCP connection: its sender retransmits it. */
static __always_inline bool is_midstream(const struct packet *packet)
{
	return packet->protocol != IPPROTO_UDP && !opens_connection(packet);
}

/* after_packet returns the state after a packet from the client (RFC 9293 section 3.3.2, as far as one direction shows
 * it). */
__noinline __u32 after_packet(__u32 state, const struct packet *packet)
{
	bool early = state == FLOW_OPENING || state == FLOW_SEEN;

	if (!packet)
		return state;
	if (state == FLOW_FIRST)
		return FLOW_UDP;
	if (state == FLOW_UDP || state == FLOW_CONTESTED || state == FLOW_REFUSED)
		return state;
	if (packet->tcp_flags & TCP_RST)
		return FLOW_CLOSED;
	if (packet->tcp_flags & TCP_FIN) {
		if (early || state == FLOW_ESTABLISHED)
			return FLOW_CLIENT_FIN;
		return state == FLOW_BACKEND_FIN ? FLOW_TIME_WAIT : state;
	}
	if (early && !(packet->tcp_flags & TCP_SYN))
		return FLOW_ESTABLISHED;
	return state;
}

/* is_refusal_of_syn reports whether a backend's packet refuses a SYN: RST with ACK says that no program listens there
 * (RFC 9293 section 3.10.7.1). */
static __always_inline bool is_refusal_of_syn(const struct packet *packet)
{
	return (packet->tcp_flags & (TCP_RST | TCP_ACK)) == (TCP_RST | TCP_ACK);
}

/* after_reply returns the state after FIN or RST of the backend. Before the client has answered the backend, only a
 * refusal ends the flow: a FIN, or a RST without ACK, is a late one of the last connection from the same port, and
 * would take the port from the connection that opens. */
static __always_inline __u32 after_reply(__u32 state, const struct packet *packet)
{
	if (state == FLOW_UDP || state == FLOW_FIRST || state == FLOW_CONTESTED ||
	    state == FLOW_REFUSED || (state == FLOW_OPENING && !is_refusal_of_syn(packet)))
		return state;
	if (packet->tcp_flags & TCP_RST)
		return state == FLOW_OPENING ? FLOW_REFUSED : FLOW_CLOSED;
	if (state == FLOW_CLIENT_FIN)
		return FLOW_CLOSED;
	return is_live(state) ? FLOW_BACKEND_FIN : state;
}

/* is_fullnat reports whether a service's flows need an entry for their replies. */
static __always_inline bool is_fullnat(const struct service *service)
{
	return has_mode(MODE_FULLNAT) && service->mode == MODE_FULLNAT;
}

/* is_stray_reset reports whether a packet is a RST of a client that has not answered its backend yet, in full NAT. The
 * backend may have acknowledged the last connection of the port there, held in TIME-WAIT; the client resets that and
 * goes on in SYN-SENT (RFC 9293 section 3.10.7.3). If that ended the flow, the next one would take the port from a
 * connection that is about to open. */
static __always_inline bool is_stray_reset(const struct service *service, __u32 state,
					   const struct packet *packet)
{
	return state == FLOW_OPENING && (packet->tcp_flags & TCP_RST) && is_fullnat(service);
}

/* is_reset reports whether a packet resets a flow whose 5-tuple a pending connection reuses: the flow is deleted then,
 * since an ended entry would hide the pending one. */
static __always_inline bool is_reset(__u32 state, const struct packet *packet)
{
	return state == FLOW_CONTESTED && (packet->tcp_flags & TCP_RST);
}

/* The bytes after a SYN among which the next segment of its connection begins: more than a SYN can carry, and enough
 * for lost segments. */
#define SEQUENCE_WINDOW 65536

/* follows_syn reports whether a segment's sequence number is shortly after that of a connection's SYN. */
static __always_inline bool follows_syn(__be32 sequence, __be32 syn)
{
	return bpf_ntohl(sequence) - bpf_ntohl(syn) - 1 < SEQUENCE_WINDOW;
}

/* flow_of writes the key of a packet's flow. */
static __always_inline void flow_of(struct flow *flow, const struct packet *packet, __u32 service)
{
	__builtin_memset(flow, 0, sizeof(*flow));
	__builtin_memcpy(flow->address, packet->source, sizeof(flow->address));
	flow->port = packet->source_port;
	flow->service = service;
}

static __always_inline __u64 hash_of(const struct flow *flow)
{
	return hash_key(flow->address, flow->port, flow->service, true);
}

/* found is a flow's place, and the bucket with its entry. */
struct found {
	struct flow_bucket *bucket;
	place_t place;
	__u32 at;
	bool proven;
};

static __always_inline bool load_found(struct found *found)
{
	if (!found->place)
		return false;
	found->at = index_of(found->place);
	found->bucket = bucket_of(found->proven, found->place);
	/* Another program, or the daemon, may be deleting it just now. */
	return found->bucket && state_of(found->bucket, found->at) != FLOW_FREE;
}

/* find_flow looks a flow up in both tables. */
static __always_inline bool find_flow(const struct flow *key, __u64 hash, struct found *found)
{
	found->proven = true;
	found->place = search_place(key, hash, true);
	if (!found->place) {
		found->proven = false;
		found->place = search_place(key, hash, false);
	}
	return load_found(found);
}

/* find_flow_inline is the same without a call. */
static __always_inline bool find_flow_inline(const struct flow *key, __u64 hash,
					     struct found *found)
{
	found->proven = true;
	found->place = find_key(key, hash, true);
	if (!found->place) {
		found->proven = false;
		found->place = find_key(key, hash, false);
	}
	return load_found(found);
}

/* find_moved looks up a flow that was in neither table: while one was searched, another CPU may have moved it from the
 * second to the first. */
static __always_inline bool find_moved(const struct flow *key, __u64 hash, struct found *found)
{
	/* Its tag there was written before its tag here was removed. */
	order_all(is_weak());
	found->proven = true;
	found->place = search_place(key, hash, true);
	return load_found(found);
}

/* owner_of returns the backend of a flow's entry, or NULL if the backend was removed since. */
static __always_inline struct backend *owner_of(void *generation, const struct flow *flow)
{
	struct backend *backend = backend_at(generation, flow->backend);

	return backend && backend->generation == flow->generation ? backend : NULL;
}

enum {
	DELETE_PROVEN = 1,
	DELETE_COUNTED = 2,
};

/* delete_flow_at is delete_flow() of a place; how: DELETE_*. It is verified once, not for each state of each caller. */
__noinline int delete_flow_at(struct flow_bucket *bucket, __u32 place, __u64 hash, __u32 state,
			      __u32 how)
{
	__u32 at = index_of(place), id, index;

	if (!bucket)
		return false;
	/* Read before the place is free: then another flow may take it at once. */
	id = bucket->flows[at].service;
	index = bucket->flows[at].backend;
	if (!set_state(bucket, at, state, FLOW_FREE))
		return false;
	if ((how & DELETE_COUNTED) && is_live(state))
		count_flow(id, index, -1);
	remove_flow(place, hash, how & DELETE_PROVEN);
	return true;
}

/* delete_flow deletes a flow that is in this state. Of several CPUs, only the one that clears its state subtracts it
 * from the counts. */
static __always_inline bool delete_flow(const struct found *found, __u64 hash, __u32 state,
					bool counted)
{
	return delete_flow_at(found->bucket, found->place, hash, state,
			      (found->proven ? DELETE_PROVEN : 0) | (counted ? DELETE_COUNTED : 0));
}

/* end_flow deletes a flow of the service, except on a dry run. */
static __always_inline void end_flow(const struct service *service, const struct found *found,
				     __u64 hash)
{
	if (!dry_run())
		delete_flow(found, hash, state_of(found->bucket, found->at),
			    service->flags & SERVICE_TRACKED);
}

/* enter_state moves a flow to its next state. Of several CPUs that see a counted one end, one subtracts it from the
 * counts: true for that one. It is verified once. */
__noinline int enter_state(struct flow_bucket *bucket, __u32 at, __u32 state, __u32 next,
			   __u32 counted)
{
	if (!bucket || next == state || !set_state(bucket, at, state, next) || !counted ||
	    !is_ended(next) || !is_live(state))
		return false;
	at &= FLOW_BUCKET - 1;
	count_flow(bucket->flows[at].service, bucket->flows[at].backend, -1);
	return true;
}

/* note_client stores the time of a packet of the client: without delay if the packet begins or ends a connection. */
static __always_inline void note_client(struct flow_bucket *bucket, __u32 at,
					const struct packet *packet, __u32 clock)
{
	if (packet->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST))
		note_change(bucket, at, clock);
	else
		note_seen(bucket, at, clock);
}

/* note_packet updates a flow by a packet of its client: true where that proves the flow, which the caller records. */
static __always_inline bool note_packet(void *generation, const struct service *service,
					const struct packet *packet, const struct found *found,
					__u64 hash)
{
	__u32 state = state_of(found->bucket, found->at), next = after_packet(state, packet);

	if (dry_run())
		return false;
	note_client(found->bucket, found->at, packet, clock_of(generation));
	if (state == FLOW_OPENING && next == FLOW_ESTABLISHED)
		note_answer(found->bucket->flows[found->at].service,
			    found->bucket->flows[found->at].backend);
	if (next != state && !found->proven && (next == FLOW_ESTABLISHED || next == FLOW_UDP))
		return true;
	if (is_reset(state, packet))
		end_flow(service, found, hash);
	if (is_stray_reset(service, state, packet))
		return false;
	enter_state(found->bucket, found->at, state, next, service->flags & SERVICE_TRACKED);
	return false;
}

/* note_end updates a flow by a FIN or RST of its backend. */
static __always_inline void note_end(struct flow_bucket *bucket, __u32 at,
				     const struct packet *packet)
{
	__u32 state = state_of(bucket, at), next = after_reply(state, packet);

	if (enter_state(bucket, at, state, next, true) && next == FLOW_REFUSED)
		note_refusal(bucket->flows[at].service, bucket->flows[at].backend);
}

/* note_reply updates a flow by a FIN or RST of its backend (mode nat), `packet`. It reports whether there is such a
 * flow. Scratch: tracking.flow is its own. */
__noinline int note_reply(const struct packet *packet, __u32 service, __u32 backend)
{
	struct scratch *scratch = get_scratch();
	struct found found;
	struct flow *key;

	if (!packet || !scratch || dry_run())
		return false;
	key = &scratch->tracking.flow;
	flow_of(key, packet, service);
	__builtin_memcpy(key->address, packet->destination, sizeof(key->address));
	key->port = packet->destination_port;
	if (!find_flow(key, hash_of(key), &found))
		return false;
	if (found.bucket->flows[found.at].backend != backend) {
		/* The packet may be of the pending connection that reuses the 5-tuple. */
		found.proven = false;
		found.place = state_of(found.bucket, found.at) == FLOW_CONTESTED ?
				      search_place(key, hash_of(key), false) :
				      0;
		if (!load_found(&found) || found.bucket->flows[found.at].backend != backend)
			return false;
	}
	if (is_reset(state_of(found.bucket, found.at), packet)) {
		delete_flow(&found, hash_of(key), FLOW_CONTESTED, true);
		return true;
	}
	note_change(found.bucket, found.at, clock_of(current_generation()));
	note_end(found.bucket, found.at, packet);
	return true;
}

/* first_state returns the state of a flow whose first packet this is. */
static __always_inline __u32 first_state(const struct packet *packet)
{
	return packet->protocol == IPPROTO_UDP ? FLOW_FIRST : FLOW_OPENING;
}

/* discard_entry removes the entry of a flow that could not be created completely. */
static __always_inline void discard_entry(__u32 place, __u64 hash)
{
	struct flow_bucket *bucket = bucket_of(false, place);

	if (bucket && put_state(bucket, index_of(place), FLOW_FREE))
		remove_flow(place, hash, false);
}

/* create_entry creates the entry of a new flow, among the unproven. Scratch: reads the key in tracking.flow, and
 * tracking.flow_hash; writes tracking.place, and the backend in tracking.flow. */
__noinline int create_entry(__u32 index, __u32 state)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	struct backend *backend;

	if (!scratch)
		return false;
	tracking = &scratch->tracking;
	backend = backend_at(generation, index);
	if (!backend)
		return false;
	tracking->flow.backend = index;
	tracking->flow.generation = backend->generation;
	if (dry_run())
		return true;
	tracking->place = insert_as(false, &tracking->flow, tracking->flow_hash, state,
				    clock_of(generation));
	return tracking->place != 0;
}
