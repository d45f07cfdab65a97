/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which service a packet is for, and which backend takes it. */
#pragma once

#include "hash.h"
#include "maps.h"
#include "parse.h"
#include "trace.h"

static __always_inline struct service *find_service4(void *generation,
						     const struct service_key4 *key)
{
	__u32 at = hash_service4(key) >> loaded.services4.shift;

#pragma unroll
	for (int i = 0; i < SERVICE_PROBES; i++, at++) {
		struct service_slot4 *slot = service4_at(generation, at);

		if (*(__u64 *)&slot->key == *(__u64 *)key)
			return &slot->service;
		if (!slot->key.address)
			return NULL;
	}
	return NULL;
}

static __always_inline struct service *find_service6(void *generation,
						     const struct service_key6 *key)
{
	const __u64 *wanted = (const __u64 *)key;
	__u32 at = hash_service6(key) >> loaded.services6.shift;

#pragma unroll
	for (int i = 0; i < SERVICE_PROBES; i++, at++) {
		struct service_slot6 *slot = service6_at(generation, at);
		__u64 *found = (__u64 *)&slot->key;

		if (found[0] == wanted[0] && found[1] == wanted[1] && found[2] == wanted[2])
			return &slot->service;
		if (!(found[0] | found[1]))
			return NULL;
	}
	return NULL;
}

/* find_service looks the destination up. With port 0 and PROTOCOL_ANY it tells
 * whether the address is a VIP at all. */
static __always_inline struct service *find_service(void *generation, const struct packet *packet,
						    __be16 port, __u8 protocol)
{
	if (packet->ipv6) {
		struct service_key6 key = {
			.port = port,
			.protocol = protocol,
		};

		__builtin_memcpy(key.address, packet->destination, sizeof(key.address));
		return find_service6(generation, &key);
	} else {
		struct service_key4 key = {
			.address = packet->destination[0],
			.port = port,
			.protocol = protocol,
		};

		return find_service4(generation, &key);
	}
}

/* search_service is for packets off the common way: what it needs is not on the
 * stack of its callers. */
static __noinline struct service *search_service(void *generation, const struct packet *packet,
						 __be16 port, __u8 protocol)
{
	return find_service(generation, packet, port, protocol);
}

/* No slot has this number. */
#define NO_ENDPOINT 0xffffffff

/* kind_of says what a packet's destination is to us, whatever the port: enum
 * service_kind. The functions that are not static here and elsewhere are verified
 * by themselves, once; a static one would be followed again from each call. */
__noinline int kind_of(const struct packet *packet)
{
	void *generation = current_generation();
	struct service *found;

	if (!packet || !generation)
		return KIND_NONE;
	found = find_service(generation, packet, 0, PROTOCOL_ANY);
	return found ? found->kind : KIND_NONE;
}

static __always_inline __u32 find_endpoint4(void *generation, const struct service_key4 *key)
{
	__u32 at = hash_service4(key) >> loaded.endpoints4.shift;

	for (int i = 0; i < SERVICE_PROBES; i++, at++) {
		struct endpoint_slot4 *slot = endpoint4_at(generation, at);

		if (*(__u64 *)&slot->key == *(__u64 *)key)
			return at;
		if (!slot->key.address)
			break;
	}
	return NO_ENDPOINT;
}

static __always_inline __u32 find_endpoint6(void *generation, const struct service_key6 *key)
{
	const __u64 *wanted = (const __u64 *)key;
	__u32 at = hash_service6(key) >> loaded.endpoints6.shift;

	for (int i = 0; i < SERVICE_PROBES; i++, at++) {
		struct endpoint_slot6 *slot = endpoint6_at(generation, at);
		__u64 *found = (__u64 *)&slot->key;

		if (found[0] == wanted[0] && found[1] == wanted[1] && found[2] == wanted[2])
			return at;
		if (!(found[0] | found[1]))
			break;
	}
	return NO_ENDPOINT;
}

/* search_endpoint looks up whose reply a packet from its source is: the number of
 * a slot, or NO_ENDPOINT. */
static __always_inline __u32 search_endpoint(void *generation, const struct packet *packet,
					     __be16 port, __u8 protocol)
{
	if (packet->ipv6) {
		struct service_key6 key = {
			.port = port,
			.protocol = protocol,
		};

		__builtin_memcpy(key.address, packet->source, sizeof(key.address));
		return find_endpoint6(generation, &key);
	} else {
		struct service_key4 key = {
			.address = packet->source[0],
			.port = port,
			.protocol = protocol,
		};

		return find_endpoint4(generation, &key);
	}
}

/* find_endpoint is the same off the common ways. With port 0 and PROTOCOL_ANY it
 * tells whether the address is a backend's at all. */
__noinline __u32 find_endpoint(const struct packet *packet, __u32 port, __u32 protocol)
{
	void *generation = current_generation();

	if (!packet || !generation)
		return NO_ENDPOINT;
	return search_endpoint(generation, packet, port, protocol);
}

static __always_inline struct endpoint *endpoint_at(void *generation,
						    const struct packet *packet, __u32 at)
{
	if (at == NO_ENDPOINT)
		return NULL;
	return packet->ipv6 ? &endpoint6_at(generation, at)->endpoint :
			      &endpoint4_at(generation, at)->endpoint;
}

/* endpoint_of brings the endpoint itself, or NULL. */
static __always_inline struct endpoint *endpoint_of(void *generation,
						    const struct packet *packet, __be16 port,
						    __u8 protocol)
{
	if (!has_mode(MODE_NAT))
		return NULL;
	return endpoint_at(generation, packet, find_endpoint(packet, port, protocol));
}

/* slot_backend goes from a slot of the service's table to its backend. */
static __always_inline struct backend *slot_backend(void *generation,
						    const struct service *service, __u32 slot)
{
	__u16 *member = slot_at(generation, service->table_base + slot);

	return member ? member_at(generation, service->member_base + *member) : NULL;
}

static __always_inline bool opens_connection(const struct packet *packet)
{
	return (packet->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/* What a tracked flow's packet is to its flow. */
enum event {
	EVENT_OPEN = 1,
	EVENT_CLOSE = 2,
};

/* What track_flow returns besides a backend's index. */
#define TRACK_OPENED (1ULL << 32)
#define TRACK_UNKNOWN (1ULL << 33)
#define TRACK_NO_BACKEND (1ULL << 34)

/* take_turn returns the backend whose turn it is. */
static __always_inline struct backend *take_turn(void *generation, const struct service *service)
{
	/* A copy: to Linux 6.1 a field of an argument is no key. */
	__u32 id = service->id, slot;
	__u64 *turn = bpf_map_lookup_elem(&turns, &id);

	if (!turn || !service->table_size)
		return NULL;
	trace_because(TRACE_NEW_FLOW);
	slot = (dry_run() ? *turn : __sync_fetch_and_add(turn, 1)) % service->table_size;
	trace_slot(slot);
	return slot_backend(generation, service, slot);
}

/* track_flow gives a new flow the next backend in turn, and a known one its
 * own: a backend's index, with TRACK_OPENED for a new flow. A TCP packet in
 * the middle of a flow that nobody remembers takes no turn and leaves no
 * entry, or strangers could spend both: TRACK_UNKNOWN. Not inlined: the
 * schedulers that track nothing would pay for its registers. */
static __noinline __u64 track_flow(struct flow_key *key, const struct service *service,
				   void *generation, __u32 event)
{
	struct flow *known = bpf_map_lookup_elem(&flows, key);
	struct flow fresh = {};
	struct backend *backend;

	if (known && !(known->closing && (event & EVENT_OPEN))) {
		backend = backend_at(generation, known->backend);
		if (backend && backend->generation == known->generation) {
			if ((event & EVENT_CLOSE) && !known->closing && !dry_run())
				known->closing = 1;
			return backend->index;
		}
	}
	if (!(event & EVENT_OPEN))
		return TRACK_UNKNOWN;
	backend = take_turn(generation, service);
	if (!backend)
		return TRACK_NO_BACKEND;
	fresh.backend = backend->index;
	fresh.generation = backend->generation;
	if (!dry_run())
		bpf_map_update_elem(&flows, key, &fresh, BPF_ANY);
	return fresh.backend | TRACK_OPENED;
}

/* decision is what is to be done with a packet. */
struct decision {
	struct service *service;
	struct backend *backend;
	/* hash_flow() of its flow. */
	__u32 hash;
	/* The interface that it leaves by, 0 for the one that it came in on. */
	__u32 egress;
	__u16 mss;
	/* enum mode */
	__u8 mode;
	__u8 tos;
	/* The packet opens a connection, as far as can be seen. */
	bool opens;
};

/* decide_by begins the decision about a packet of a service. */
static __always_inline void decide_by(struct service *service, const struct packet *packet,
				      struct decision *decision)
{
	trace_service(service);
	decision->service = service;
	decision->mode = service->mode;
	decision->tos = service->tos;
	decision->mss = service->mss;
	decision->hash = hash_flow(packet);
}

/* choose_by_hash is for schedulers that are a function of the packet. */
static __always_inline void choose_by_hash(void *generation, const struct packet *packet,
					   struct decision *decision)
{
	__u32 slot;

	decision->opens = opens_connection(packet);
	slot = hash_scale(decision->hash, decision->service->table_size);
	trace_slot(slot);
	decision->backend = slot_backend(generation, decision->service, slot);
}

/* choose_by_turn is for schedulers that choose when a flow opens. */
static __always_inline void choose_by_turn(void *generation, const struct packet *packet,
					   struct decision *decision)
{
	struct flow_key key = {
		.service = decision->service->id,
		.port = packet->source_port,
	};
	__u32 event = 0;
	__u64 tracked;

	__builtin_memcpy(key.address, packet->source, sizeof(key.address));
	if (packet->protocol == IPPROTO_UDP || opens_connection(packet))
		event |= EVENT_OPEN;
	if (packet->tcp_flags & (TCP_FIN | TCP_RST))
		event |= EVENT_CLOSE;
	tracked = track_flow(&key, decision->service, generation, event);
	if (tracked & TRACK_UNKNOWN) {
		choose_by_hash(generation, packet, decision);
		return;
	}
	if (tracked & TRACK_NO_BACKEND)
		return;
	decision->backend = backend_at(generation, (__u32)tracked);
	decision->opens = !!(tracked & TRACK_OPENED);
	if (!decision->opens)
		trace_because(TRACE_KNOWN_FLOW);
}

/* select_backend chooses, and says why there is no choice. */
static __noinline enum outcome select_backend(void *generation, const struct packet *packet,
					      struct decision *decision)
{
	const struct service *service = decision->service;

	if (!service->table_size)
		return OUTCOME_DROPPED_NO_BACKEND;
	if (service->scheduler == SCHEDULER_MAGLEV) {
		/* Only backends that are up are members. */
		choose_by_hash(generation, packet, decision);
		return decision->backend ? OUTCOME_NONE : OUTCOME_DROPPED_NO_BACKEND;
	}
	choose_by_turn(generation, packet, decision);
	if (!decision->backend)
		return OUTCOME_DROPPED_NO_BACKEND;
	return decision->backend->up ? OUTCOME_NONE : OUTCOME_DROPPED_BACKEND_DOWN;
}
