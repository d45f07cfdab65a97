/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connection tracking: the states of flows, and the packets that begin, move and end them. */
#pragma once

#include "flowtable.h"
#include "refusal.h"
#include "../maps.h"
#include "../scratch.h"
#include "../trace.h"
#include "../parse.h"

/* is_live says whether a flow counts among those that neither end has closed. */
static __always_inline bool is_live(__u32 state)
{
	return state >= FLOW_OPENING && state <= FLOW_UDP;
}

static __always_inline bool is_ended(__u32 state)
{
	return state >= FLOW_CLIENT_FIN && state <= FLOW_TIME_WAIT;
}

/* flows_move says whether flows are moved into the tables that packets have just begun to go by.
 * A flow that began in the old tables since the last copy is not known yet, and under its key may
 * stand one that has ended: to send its packets on meanwhile, another backend would reset it. */
static __always_inline bool flows_move(void *generation)
{
	__u64 until = head_of(generation)->moving;

	return __builtin_expect(until != 0, 0) && bpf_ktime_get_ns() < until;
}

/* goes_on says whether a packet is one in the middle of a TCP connection: its sender sends it
 * again. */
static __always_inline bool goes_on(const struct packet *packet)
{
	return packet->protocol != IPPROTO_UDP && !opens_connection(packet);
}

/* after_packet is the state after a packet from the client (RFC 9293 section 3.3.2, as
 * far as one direction shows it). */
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

/* is_refusal_of_syn says whether a backend's packet refuses a SYN: RST with ACK says that no
 * program listens there (RFC 9293 section 3.10.7.1). */
static __always_inline bool is_refusal_of_syn(const struct packet *packet)
{
	return (packet->tcp_flags & (TCP_RST | TCP_ACK)) == (TCP_RST | TCP_ACK);
}

/* after_reply is the state after FIN or RST of the backend. Before the client has answered the
 * backend, only a refusal ends the flow: a FIN, or a RST without ACK, is a late one of the last
 * connection from the same port, and would take the port from the connection that opens. */
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

/* is_fullnat says whether a service's flows must be remembered, for their replies. */
static __always_inline bool is_fullnat(const struct service *service)
{
	return has_mode(MODE_FULLNAT) && service->mode == MODE_FULLNAT;
}

/* is_stray_reset says whether a packet is a RST of a client that has not answered its backend yet,
 * in full NAT. The backend may have acknowledged the last connection of the port there, held in
 * TIME-WAIT; the client resets that and goes on in SYN-SENT (RFC 9293 section 3.10.7.3). If that
 * ended the flow, the next one would take the port from a connection that is about to open. */
static __always_inline bool is_stray_reset(const struct service *service, __u32 state,
					   const struct packet *packet)
{
	return state == FLOW_OPENING && (packet->tcp_flags & TCP_RST) && is_fullnat(service);
}

/* is_reset says whether a packet ends a flow that another connection contests: it is
 * forgotten then, for an entry that has ended would stand in the other's way. */
static __always_inline bool is_reset(__u32 state, const struct packet *packet)
{
	return state == FLOW_CONTESTED && (packet->tcp_flags & TCP_RST);
}

/* The bytes after a SYN among which the next segment of its connection begins: more than
 * a SYN can bear, and so many that some may be lost. */
#define SEQUENCE_WINDOW 65536

/* follows says whether a segment comes soon after the SYN of a connection. */
static __always_inline bool follows(__be32 sequence, __be32 syn)
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

static __always_inline bool see_flow(struct found *found)
{
	if (!found->place)
		return false;
	found->at = within(found->place);
	found->bucket = bucket_of(found->proven, found->place);
	/* Another program, or the daemon, may be forgetting it just now. */
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
	return see_flow(found);
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
	return see_flow(found);
}

/* find_moved looks for a flow that was in neither table: while one was searched, another
 * CPU may have moved it from the second to the first. */
static __always_inline bool find_moved(const struct flow *key, __u64 hash, struct found *found)
{
	/* Its tag there was written before the one that was looked for here was taken out. */
	order_all(is_weak());
	found->proven = true;
	found->place = search_place(key, hash, true);
	return see_flow(found);
}

/* owner_of is the backend that a flow was given, or NULL if that has left since. */
static __always_inline struct backend *owner_of(void *generation, const struct flow *flow)
{
	struct backend *backend = backend_at(generation, flow->backend);

	return backend && backend->generation == flow->generation ? backend : NULL;
}

enum {
	FORGET_PROVEN = 1,
	FORGET_COUNTED = 2,
};

/* forget_at is forget_flow() of a place; how: FORGET_*. Verifiers follow it once, not for each state of each caller. */
__noinline int forget_at(struct flow_bucket *bucket, __u32 place, __u64 hash, __u32 state,
			 __u32 how)
{
	__u32 at = within(place), id, index;

	if (!bucket)
		return false;
	/* Before it has gone: then the place may soon be another's. */
	id = bucket->flows[at].service;
	index = bucket->flows[at].backend;
	if (!set_state(bucket, at, state, FLOW_FREE))
		return false;
	if ((how & FORGET_COUNTED) && is_live(state))
		count_flow(id, index, -1);
	remove_flow(place, hash, how & FORGET_PROVEN);
	return true;
}

/* forget_flow forgets a flow that is in this state. Of several CPUs that do, the one that
 * empties its state counts it off. */
static __always_inline bool forget_flow(const struct found *found, __u64 hash, __u32 state,
					bool counted)
{
	return forget_at(found->bucket, found->place, hash, state,
			 (found->proven ? FORGET_PROVEN : 0) | (counted ? FORGET_COUNTED : 0));
}

/* end_flow forgets a flow of the service, unless the program is on a dry run. */
static __always_inline void end_flow(const struct service *service, const struct found *found,
				     __u64 hash)
{
	if (!dry_run())
		forget_flow(found, hash, state_of(found->bucket, found->at),
			    service->flags & SERVICE_TRACKED);
}

/* enter_state moves a flow to its next state. Of several CPUs that see a counted one end,
 * one counts it off: true for that one. Verifiers follow it once. */
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

/* note_client keeps when a packet of the client was seen: one by which a connection begins or ends
 * without delay. */
static __always_inline void note_client(struct flow_bucket *bucket, __u32 at,
					const struct packet *packet, __u32 clock)
{
	if (packet->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST))
		note_change(bucket, at, clock);
	else
		note_seen(bucket, at, clock);
}

/* note_packet updates a flow by a packet of its client: true where that is the flow's proof, which the caller keeps. */
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

/* note_end keeps that a backend's packet has ended a flow. */
static __always_inline void note_end(struct flow_bucket *bucket, __u32 at,
				     const struct packet *packet)
{
	__u32 state = state_of(bucket, at), next = after_reply(state, packet);

	if (enter_state(bucket, at, state, next, true) && next == FLOW_REFUSED)
		note_refusal(bucket->flows[at].service, bucket->flows[at].backend);
}

/* note_reply keeps that a backend has ended a flow (mode nat): `packet` is its FIN or
 * RST on the way to the client. It says whether there is such a flow. Scratch: tracking.flow is
 * its own. */
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
		/* Of one that contests it, perhaps. */
		found.proven = false;
		found.place = state_of(found.bucket, found.at) == FLOW_CONTESTED ?
				      search_place(key, hash_of(key), false) :
				      0;
		if (!see_flow(&found) || found.bucket->flows[found.at].backend != backend)
			return false;
	}
	if (is_reset(state_of(found.bucket, found.at), packet)) {
		forget_flow(&found, hash_of(key), FLOW_CONTESTED, true);
		return true;
	}
	note_change(found.bucket, found.at, clock_of(current_generation()));
	note_end(found.bucket, found.at, packet);
	return true;
}

/* first_state is that of a flow of which this is the first packet. */
static __always_inline __u32 first_state(const struct packet *packet)
{
	return packet->protocol == IPPROTO_UDP ? FLOW_FIRST : FLOW_OPENING;
}

/* forget_place removes the entry of a flow that cannot begin. */
static __always_inline void forget_place(__u32 place, __u64 hash)
{
	struct flow_bucket *bucket = bucket_of(false, place);

	if (bucket && put_state(bucket, within(place), FLOW_FREE))
		remove_flow(place, hash, false);
}

/* remember makes an entry of a new flow, among the unproven. Scratch: takes the key in
 * tracking.flow, and tracking.flow_hash; leaves tracking.place, and the backend in
 * tracking.flow. */
__noinline int remember(__u32 index, __u32 state)
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
