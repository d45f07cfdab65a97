/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fast path of a flow's first packet, for services that track every flow and have no limits. A packet that needs
 * more is left unchanged to choose_on_slow_path(). */
#pragma once

#include "choose.h"

/* The flags of services whose flows only the slow path may begin. */
#define SERVICE_BOUNDS (SERVICE_PERSISTENT | SERVICE_RATE | SERVICE_LIMITED | SERVICE_BY_SOURCE)

/* picks_plainly says whether a scheduler picks without a call. */
static __always_inline bool picks_plainly(const struct service *service)
{
	return schedules_by(service, SCHEDULER_TURN) || schedules_by(service, SCHEDULER_FEWEST) ||
	       schedules_by(service, SCHEDULER_TWO);
}

/* begins_plainly says whether a packet may be the first of a flow that begin_plainly() can begin. */
static __always_inline bool begins_plainly(const struct service *service,
					   const struct packet *packet)
{
	return (service->flags & (SERVICE_TRACKED | SERVICE_BOUNDS)) == SERVICE_TRACKED &&
	       picks_plainly(service) && !is_fullnat(service) &&
	       (packet->protocol == IPPROTO_UDP || opens_connection(packet));
}

/* pick_plainly picks among backends of which none can be full. */
static __always_inline __u64 pick_plainly(void *generation, const struct service *service,
					  __u32 hash)
{
	struct pick pick = {};
	__u32 member;

	if (!begin_pick(generation, service, hash, &pick))
		return PICK_NONE;
	if (schedules_by(service, SCHEDULER_TURN))
		member = pick_turn(generation, &pick);
	else if (schedules_by(service, SCHEDULER_FEWEST))
		member = pick_fewest(&pick, service->id);
	else
		member = pick_two(generation, &pick, service->table_size);
	return member_index(generation, pick.members, member, false);
}

/* is_remembered looks for a flow in both tables, and where its packets so far may be its
 * proof, once more in the first: see find_moved(). */
static __always_inline bool is_remembered(const struct flow *key, __u64 hash, bool may_move)
{
	if (find_key(key, hash, true) || find_key(key, hash, false))
		return true;
	if (!may_move)
		return false;
	order_all(is_weak());
	return search_place(key, hash, true);
}

/* beginner packs the client's port, the protocol, whether the address is IPv6, and the offset of the transport header
 * in the frame of a plain packet (in bytes, 62 at most) into one word. A word is passed by value, so that its caller's
 * registers need not be spilled to the stack. */
#define BEGINNER_IPV6 (1 << 24)
#define BEGINNER_TRANSPORT 25

static __always_inline __u32 beginner(const struct packet *packet, bool ipv6)
{
	__u32 transport = packet->network + (ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));

	return packet->source_port | (__u32)packet->protocol << 16 | (ipv6 ? BEGINNER_IPV6 : 0) |
	       transport << BEGINNER_TRANSPORT;
}

/* note_opening keeps the sequence number of a flow's SYN; false where the packet has none. */
static __always_inline bool note_opening(ctx_t *ctx, __u32 who, struct flow *flow)
{
	struct tcphdr *tcp = ctx_data(ctx) + (who >> BEGINNER_TRANSPORT);

	if ((void *)(tcp + 1) > ctx_data_end(ctx))
		return false;
	flow->syn = tcp->seq;
	return true;
}

/* begin_plainly begins the flow of a plain packet from the client at an address: its first and
 * its last 8 bytes, and beginner(). It returns the backend's index, or CHOICE_OPEN: the flow is
 * known, or its place is taken, or no backend takes it. */
__noinline __u64 begin_plainly(ctx_t *ctx, const struct service *service, __u64 first, __u64 last,
			       __u32 who)
{
	__u32 state = (who >> 16 & 0xff) == IPPROTO_UDP ? FLOW_FIRST : FLOW_OPENING;
	void *generation = current_generation();
	struct flow flow = { .port = who };
	struct flow_bucket *bucket;
	struct backend *owner;
	__u64 key, choice, at;

	if (!service || (state == FLOW_OPENING && !note_opening(ctx, who, &flow)))
		return CHOICE_OPEN;
	__builtin_memcpy(&flow.address[0], &first, sizeof(first));
	__builtin_memcpy(&flow.address[2], &last, sizeof(last));
	flow.service = service->id;
	key = hash_of(&flow);
	touch(key);
	if (is_remembered(&flow, key, state == FLOW_FIRST))
		return CHOICE_OPEN;
	bucket = bucket_at(false, home_of(key, loaded.newcomer_buckets));
	if (!bucket || tags_in(bucket) >= HOME_ENOUGH)
		return CHOICE_OPEN;
	at = claim(bucket, preferred_slot_of(key));
	if (at >= FLOW_BUCKET)
		return CHOICE_OPEN;
	choice = pick_plainly(generation, service,
			      hash_client(first, last, who, who & BEGINNER_IPV6));
	owner = choice < PICK_NONE ? backend_at(generation, choice) : NULL;
	if (!owner) {
		vacate(bucket, at, FLOW_BUSY);
		return CHOICE_OPEN;
	}
	flow.backend = choice;
	flow.generation = owner->generation;
	settle_at(bucket, at, &flow, key, state, clock_of(generation));
	count_flow(service->id, choice, 1);
	return choice;
}

/* begin_on_fast_path begins a packet's flow on the fast path: its backend, or NULL. Traced programs take the slow path,
 * which notes the reasons. */
static __always_inline struct backend *begin_on_fast_path(ctx_t *ctx, void *generation,
						     const struct service *service,
						     const struct packet *packet, bool ipv6)
{
#ifndef TRACED
	__u64 first = packet->source[0], last = 0, choice;

	if (!begins_plainly(service, packet))
		return NULL;
	if (ipv6) {
		first |= (__u64)packet->source[1] << 32;
		last = (__u64)packet->source[3] << 32 | packet->source[2];
	}
	choice = begin_plainly(ctx, service, first, last, beginner(packet, ipv6));
	return choice & CHOICE_OPEN ? NULL : backend_at(generation, (__u32)choice);
#else
	return NULL;
#endif
}
