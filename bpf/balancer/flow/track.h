/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is remembered of flows: how they begin, go on and end. */
#pragma once

#include "flowtable.h"
#include "../choose/group.h"
#include "../maps.h"
#include "../../lib/parse.h"
#include "../choose/refusal.h"
#include "../choose/schedule.h"
#include "../scratch.h"
#include "../trace.h"

static __always_inline bool opens_connection(const struct packet *packet)
{
	return (packet->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/* For flows of full NAT, whose other end stands in a second table: fullnat.h. */
int nat_moved(__u32 from, __u32 to, __u32 protocol);
int nat_begin(const struct service *service, __u32 hash);

/* A choice is the backend's index in the low half, and in the high half this, or an enum
 * outcome and CHOICE_FAILED. */
#define CHOICE_OPENS (1ULL << 32)
/* The flow has just proven itself. */
#define CHOICE_PROVEN (1ULL << 33)
/* No choice yet: no entry says it. */
#define CHOICE_OPEN (1ULL << 34)
#define CHOICE_FAILED (1ULL << 63)

static __always_inline __u64 fail_with(enum outcome outcome)
{
	return CHOICE_FAILED | outcome;
}

/* is_live says whether a flow counts among those that nobody has ended. */
static __always_inline bool is_live(__u32 state)
{
	return state >= FLOW_OPENING && state <= FLOW_UDP;
}

static __always_inline bool is_ended(__u32 state)
{
	return state >= FLOW_CLIENT_FIN && state <= FLOW_TIME_WAIT;
}

/* after_packet is the state after a packet from the client (RFC 9293 section 3.3.2, as
 * far as one direction shows it). */
static __always_inline __u32 after_packet(__u32 state, const struct packet *packet)
{
	bool early = state == FLOW_OPENING || state == FLOW_SEEN;

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

/* after_reply is the state after FIN or RST of the backend. RST in answer to a SYN says that
 * no program listens there (RFC 9293 section 3.10.7.1). */
static __always_inline __u32 after_reply(__u32 state, const struct packet *packet)
{
	if (state == FLOW_UDP || state == FLOW_FIRST || state == FLOW_CONTESTED ||
	    state == FLOW_REFUSED)
		return state;
	if (packet->tcp_flags & TCP_RST)
		return state == FLOW_OPENING ? FLOW_REFUSED : FLOW_CLOSED;
	if (state == FLOW_CLIENT_FIN)
		return FLOW_CLOSED;
	return is_live(state) ? FLOW_BACKEND_FIN : state;
}

/* is_reset says whether a packet ends a flow that another connection contests: it is
 * forgotten then, for an entry that has ended would stand in the other's way. */
static __always_inline bool is_reset(__u32 state, const struct packet *packet)
{
	return state == FLOW_CONTESTED && (packet->tcp_flags & TCP_RST);
}

/* Where a flow of another mode than full NAT has the sequence number of its SYN. */
#define FLOW_SEQUENCE offsetof(struct flow, nat_port)

/* opened_with is the sequence number of the SYN that was last sent to a flow's backend. */
static __always_inline __be32 opened_with(const struct flow *flow)
{
	__be32 sequence;

	__builtin_memcpy(&sequence, (const void *)flow + FLOW_SEQUENCE, sizeof(sequence));
	return sequence;
}

static __always_inline void open_with(struct flow *flow, __be32 sequence)
{
	__builtin_memcpy((void *)flow + FLOW_SEQUENCE, &sequence, sizeof(sequence));
}

/* The bytes after a SYN among which the next segment of its connection begins: more than
 * a SYN can bear, and so many that some may be lost. */
#define SEQUENCE_WINDOW 65536

/* follows says whether a segment comes soon after the SYN of a connection. */
static __always_inline bool follows(__be32 sequence, __be32 syn)
{
	return bpf_ntohl(sequence) - bpf_ntohl(syn) - 1 < SEQUENCE_WINDOW;
}

/* flow_of writes the key of a packet's flow into the scratch memory. */
static __always_inline void flow_of(struct flow *flow, const struct packet *packet, __u32 service)
{
	__builtin_memset(flow, 0, sizeof(*flow));
	__builtin_memcpy(flow->address, packet->source, sizeof(flow->address));
	flow->port = packet->source_port;
	flow->service = service;
}

/* masked keeps the first bits of an address. */
static __always_inline void masked(__be32 *address, __u32 bits)
{
#pragma unroll
	for (int word = 0; word < 4; word++) {
		if (bits >= 32) {
			bits -= 32;
			continue;
		}
		/* A shift by 32 is none. */
		address[word] &= bits ? bpf_htonl(0xffffffff << (32 - bits)) : 0;
		bits = 0;
	}
}

/* client_of writes the key of the affinity of a packet's client; false where it has none. */
static __always_inline bool client_of(void *generation, struct flow *flow, const struct flow *of,
				      const struct service *service)
{
	__u32 whose = service->id;

	__builtin_memset(flow, 0, sizeof(*flow));
	if (service->flags & SERVICE_GROUPED)
		whose = group_of(generation, service);
	if ((service->flags & SERVICE_GROUPED) && !whose)
		return false;
	__builtin_memcpy(flow->address, of->address, sizeof(flow->address));
	masked(flow->address, service->prefix);
	flow->service = whose | FLOW_KEY_AFFINITY;
	return true;
}

static __always_inline __u64 hash_of(const struct flow *flow)
{
	return hash_key(flow->address, flow->port, flow->service, true);
}

/* found is a flow's place, and what stands there. */
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
	/* Somebody may be forgetting it just now. */
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
	found->place = find_place(true, false, hash, key->address, key->port, key->service, true);
	if (!found->place) {
		found->proven = false;
		found->place = find_place(false, false, hash, key->address, key->port,
					  key->service, true);
	}
	return see_flow(found);
}

/* find_moved looks for a flow that was in neither table: while one was searched, another
 * CPU may have moved it from the second to the first. */
static __always_inline bool find_moved(const struct flow *key, __u64 hash, struct found *found)
{
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

/* forget_flow forgets a flow that is in this state. Of several CPUs that do, the one that
 * empties its state counts it off. */
static __always_inline bool forget_flow(const struct found *found, __u64 hash, __u32 state,
					bool counted)
{
	/* Before it has gone: then the place may soon be another's. */
	__u32 id = found->bucket->flows[found->at].service;
	__u32 index = found->bucket->flows[found->at].backend;

	if (!set_state(found->bucket, found->at, state, FLOW_FREE))
		return false;
	if (counted && is_live(state))
		count_flow(id, index, -1);
	remove_flow(found->place, hash, found->proven);
	return true;
}

/* end_flow forgets a flow of the service, unless all that is asked is a question. */
static __always_inline void end_flow(const struct service *service, const struct found *found,
				     __u64 hash)
{
	if (!dry_run())
		forget_flow(found, hash, state_of(found->bucket, found->at),
			    service->flags & SERVICE_TRACKED);
}

/* has_not_proven says whether a state is one that proof changes: who finds another one is
 * late, for the flow was proven, or has ended, on another CPU. */
static __always_inline bool has_not_proven(__u32 state)
{
	return (state >= FLOW_OPENING && state <= FLOW_FIRST) || state == FLOW_AFFINITY_NEW;
}

/* copy_proven makes an entry of the unproven one of the proven too, if there is room, and
 * returns its place there. Of several CPUs, the one that changes its state does. */
static __always_inline place_t copy_proven(__u32 place, struct flow *copy, __u64 hash, __u32 state)
{
	struct flow_bucket *bucket = bucket_of(false, place);
	__u32 at = within(place), was;

	if (!bucket)
		return 0;
	was = state_of(bucket, at);
	if (!has_not_proven(was) || !set_state(bucket, at, was, state))
		return 0;
	*copy = bucket->flows[at];
	return insert_flow(copy, hash, true, state, bucket->seen[at]);
}

/* leave_unproven takes it out there; false where its state has changed since. */
static __always_inline bool leave_unproven(__u32 place, __u64 hash, __u32 state)
{
	struct flow_bucket *bucket = bucket_of(false, place);

	if (!bucket)
		return true;
	if (!set_state(bucket, within(place), state, FLOW_FREE))
		return false;
	remove_flow(place, hash, false);
	return true;
}

/* end_copy ends a proven flow whose unproven entry was ended, or forgotten, and counted
 * off, before the copy was there to be found. If the copy was found and ended meanwhile,
 * it was counted off twice. */
static __always_inline void end_copy(const struct service *service, __u32 from, __u32 place,
				     __u64 hash, __u32 state)
{
	struct flow_bucket *unproven = bucket_of(false, from), *proven = bucket_of(true, place);
	__u32 at = within(place), next;

	if (!unproven || !proven)
		return;
	next = state_of(unproven, within(from));
	if (!is_ended(next))
		next = FLOW_FREE;
	if (set_state(proven, at, state, next)) {
		if (next == FLOW_FREE)
			remove_flow(place, hash, true);
	} else if (service->flags & SERVICE_TRACKED) {
		count_flow(service->id, proven->flows[at].backend, 1);
	}
}

/* prove_flow: the flow of struct tracking has proven itself. */
__noinline int prove_flow(const struct service *service, __u32 nat, __u32 protocol)
{
	__u32 state = protocol == IPPROTO_UDP ? FLOW_UDP : FLOW_ESTABLISHED;
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	place_t place;

	if (!service || !scratch)
		return 0;
	tracking = &scratch->tracking;
	place = copy_proven(tracking->place, &tracking->moving, tracking->flow_hash, state);
	if (!place)
		return 0;
	/* Before the old place is empty: replies must find one of them. */
	if (nat)
		nat_moved(tracking->place, place, protocol);
	if (!leave_unproven(tracking->place, tracking->flow_hash, state))
		end_copy(service, tracking->place, place, tracking->flow_hash, state);
	return 0;
}

/* prove_client: so has with it where its client goes. */
__noinline int prove_client(const struct service *service)
{
	struct scratch *scratch = get_scratch();
	struct tracking *tracking;
	struct flow_bucket *bucket;
	__u32 place;

	if (!service || !scratch)
		return 0;
	tracking = &scratch->tracking;
	if (!client_of(current_generation(), &tracking->client, &tracking->flow, service))
		return 0;
	tracking->client_hash = hash_of(&tracking->client);
	place = search_place(&tracking->client, tracking->client_hash, false);
	if (!place)
		return 0;
	bucket = bucket_of(false, place);
	if (bucket && state_of(bucket, within(place)) == FLOW_AFFINITY_NEW &&
	    copy_proven(place, &tracking->moving, tracking->client_hash, FLOW_AFFINITY))
		leave_unproven(place, tracking->client_hash, FLOW_AFFINITY);
	return 0;
}

/* enter_state moves a flow to its next state. Of several CPUs that see a counted one end,
 * one counts it off: true for that one. */
static __always_inline bool enter_state(struct flow_bucket *bucket, __u32 at, __u32 state,
					__u32 next, bool counted)
{
	if (next == state || !set_state(bucket, at, state, next) || !counted || !is_ended(next) ||
	    !is_live(state))
		return false;
	count_flow(bucket->flows[at].service, bucket->flows[at].backend, -1);
	return true;
}

/* note_packet keeps what a packet of the client says about its flow: true where that is
 * the flow's proof, which the caller keeps. */
static __always_inline bool note_packet(void *generation, const struct service *service,
					const struct packet *packet, const struct found *found,
					__u64 hash)
{
	__u32 state = state_of(found->bucket, found->at), next = after_packet(state, packet);

	if (dry_run())
		return false;
	note_seen(found->bucket, found->at, clock_of(generation));
	if (state == FLOW_OPENING && next == FLOW_ESTABLISHED)
		note_answer(found->bucket->flows[found->at].service,
			    found->bucket->flows[found->at].backend);
	if (next != state && !found->proven && (next == FLOW_ESTABLISHED || next == FLOW_UDP))
		return true;
	if (is_reset(state, packet))
		end_flow(service, found, hash);
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
 * RST on the way to the client. */
__noinline int note_reply(const struct packet *packet, __u32 service, __u32 backend)
{
	struct scratch *scratch = get_scratch();
	struct found found;
	struct flow *key;

	if (!packet || !scratch || dry_run())
		return 0;
	key = &scratch->tracking.flow;
	flow_of(key, packet, service);
	__builtin_memcpy(key->address, packet->destination, sizeof(key->address));
	key->port = packet->destination_port;
	if (!find_flow(key, hash_of(key), &found))
		return 0;
	if (found.bucket->flows[found.at].backend != backend) {
		/* Of one that contests it, perhaps. */
		found.proven = false;
		found.place = state_of(found.bucket, found.at) == FLOW_CONTESTED ?
				      search_place(key, hash_of(key), false) :
				      0;
		if (!see_flow(&found) || found.bucket->flows[found.at].backend != backend)
			return 0;
	}
	if (is_reset(state_of(found.bucket, found.at), packet)) {
		forget_flow(&found, hash_of(key), FLOW_CONTESTED, true);
		return 0;
	}
	note_end(found.bucket, found.at, packet);
	return 0;
}

/* first_state is that of a flow of which this is the first packet. */
static __always_inline __u32 first_state(const struct packet *packet)
{
	return packet->protocol == IPPROTO_UDP ? FLOW_FIRST : FLOW_OPENING;
}

/* forget_place takes back what was remembered of a flow that cannot begin. */
static __always_inline void forget_place(__u32 place, __u64 hash)
{
	struct flow_bucket *bucket = bucket_of(false, place);

	if (bucket && put_state(bucket, within(place), FLOW_FREE))
		remove_flow(place, hash, false);
}

/* remember makes an entry of the flow of struct tracking, among the unproven. */
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
