/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fast path of a flow's first packet, for services that track every flow and have no limits. A packet that needs
 * the slow path is left unchanged (select_on_slow_path()). */
#pragma once

#include "select.h"

/* The flags of services whose flows only the slow path may begin. */
#define SERVICE_SLOW_PATH (SERVICE_PERSISTENT | SERVICE_RATE | SERVICE_LIMITED | SERVICE_BY_SOURCE)

/* can_pick_fast reports whether a service's scheduler needs no call. */
static __always_inline bool can_pick_fast(const struct service *service)
{
	return schedules_by(service, SCHEDULER_ROUND_ROBIN) || schedules_by(service, SCHEDULER_LEAST_CONN) ||
	       schedules_by(service, SCHEDULER_TWO_CHOICES);
}

/* can_begin_fast reports whether a packet may be the first of a flow that begin_fast() can begin. */
static __always_inline bool can_begin_fast(const struct service *service,
					   const struct packet *packet)
{
	return (service->flags & (SERVICE_TRACKED | SERVICE_SLOW_PATH)) == SERVICE_TRACKED &&
	       can_pick_fast(service) && !is_fullnat(service) &&
	       (packet->protocol == IPPROTO_UDP || opens_connection(packet));
}

/* pick_fast picks among backends without thresholds. */
static __always_inline __u64 pick_fast(void *generation, const struct service *service,
				       __u32 hash)
{
	struct pick pick = {};
	__u32 member;

	if (!init_pick(generation, service, hash, &pick))
		return PICK_NONE;
	if (schedules_by(service, SCHEDULER_ROUND_ROBIN))
		member = pick_round_robin(generation, &pick);
	else if (schedules_by(service, SCHEDULER_LEAST_CONN))
		member = pick_least_conn(&pick, service->id);
	else
		member = pick_two_choices(generation, &pick, service->table_size);
	return member_index(generation, pick.members, member, false);
}

/* has_entry looks a flow up in both tables, and once more in the first if the flow may just have been proven: see
 * find_moved(). */
static __always_inline bool has_entry(const struct flow *key, __u64 hash, bool may_move)
{
	if (find_key(key, hash, true) || find_key(key, hash, false))
		return true;
	if (!may_move)
		return false;
	order_all(is_weak());
	return search_place(key, hash, true);
}

/* pack_new_flow packs the client's port, the protocol, whether the address is IPv6, and the offset of the transport
 * header in the frame of a plain packet (in bytes, 62 at most) into one word. A word is passed by value, so that the
 * caller need not spill registers to the stack. */
#define NEW_FLOW_IPV6 (1 << 24)
#define NEW_FLOW_TRANSPORT 25

static __always_inline __u32 pack_new_flow(const struct packet *packet, bool ipv6)
{
	__u32 transport = packet->network + (ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));

	return packet->source_port | (__u32)packet->protocol << 16 | (ipv6 ? NEW_FLOW_IPV6 : 0) |
	       transport << NEW_FLOW_TRANSPORT;
}

/* note_syn_sequence stores the sequence number of a flow's SYN; false where the TCP header cannot be read. */
static __always_inline bool note_syn_sequence(ctx_t *ctx, __u32 packed, struct flow *flow)
{
	struct tcphdr *tcp = ctx_data(ctx) + (packed >> NEW_FLOW_TRANSPORT);

	if ((void *)(tcp + 1) > ctx_data_end(ctx))
		return false;
	flow->syn = tcp->seq;
	return true;
}

/* begin_fast begins the flow of a plain packet from the client at an address: its first and its last 8 bytes, and
 * pack_new_flow(). It returns the backend's index, or SELECTION_NONE if the flow has an entry, its home bucket is full,
 * or there is no backend. */
__noinline __u64 begin_fast(ctx_t *ctx, const struct service *service, __u64 first, __u64 last,
			    __u32 packed)
{
	__u32 state = (packed >> 16 & 0xff) == IPPROTO_UDP ? FLOW_FIRST : FLOW_OPENING;
	void *generation = current_generation();
	struct flow flow = { .port = packed };
	struct flow_bucket *bucket;
	struct backend *owner;
	__u64 key, selection, at;

	if (!service || (state == FLOW_OPENING && !note_syn_sequence(ctx, packed, &flow)))
		return SELECTION_NONE;
	__builtin_memcpy(&flow.address[0], &first, sizeof(first));
	__builtin_memcpy(&flow.address[2], &last, sizeof(last));
	flow.service = service->id;
	key = hash_of(&flow);
	prefetch_buckets(key);
	if (has_entry(&flow, key, state == FLOW_FIRST))
		return SELECTION_NONE;
	bucket = bucket_at(false, home_of(key, loaded.newcomer_buckets));
	if (!bucket || tags_in(bucket) >= HOME_THRESHOLD)
		return SELECTION_NONE;
	at = claim_place(bucket, preferred_slot_of(key));
	if (at >= FLOW_BUCKET)
		return SELECTION_NONE;
	selection = pick_fast(generation, service,
			      hash_client(first, last, packed, packed & NEW_FLOW_IPV6));
	owner = selection < PICK_NONE ? backend_at(generation, selection) : NULL;
	if (!owner) {
		release_place(bucket, at, FLOW_BUSY);
		return SELECTION_NONE;
	}
	flow.backend = selection;
	flow.generation = owner->generation;
	write_flow(bucket, at, &flow, key, state, clock_of(generation));
	count_flow(service->id, selection, 1);
	return selection;
}

/* begin_on_fast_path begins a packet's flow on the fast path: its backend, or NULL. Traced programs take the slow path,
 * which records the reasons. */
static __always_inline struct backend *begin_on_fast_path(ctx_t *ctx, void *generation,
						     const struct service *service,
						     const struct packet *packet, bool ipv6)
{
#ifndef TRACED
	__u64 first = packet->source[0], last = 0, selection;

	if (!can_begin_fast(service, packet))
		return NULL;
	if (ipv6) {
		first |= (__u64)packet->source[1] << 32;
		last = (__u64)packet->source[3] << 32 | packet->source[2];
	}
	selection = begin_fast(ctx, service, first, last, pack_new_flow(packet, ipv6));
	return selection & SELECTION_NONE ? NULL : backend_at(generation, (__u32)selection);
#else
	return NULL;
#endif
}
