/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which service a packet is for, and which backend takes it. */
#pragma once

#include "hash.h"
#include "maps.h"
#include "parse.h"

static __always_inline struct service *find_service4(void *generation,
						     const struct service_key4 *key)
{
	__u32 at = hash_service4(key) >> loaded.services4_shift;

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
	__u32 at = hash_service6(key) >> loaded.services6_shift;

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

/* select_service finds the service, or says why there is none. */
static __always_inline enum outcome select_service(void *generation, const struct packet *packet,
						   struct service **service)
{
	if (packet->fragment || packet->unwalked) {
		if (!find_service(generation, packet, 0, PROTOCOL_ANY))
			return OUTCOME_PASSED_NO_SERVICE;
		return packet->fragment ? OUTCOME_DROPPED_FRAGMENT :
					  OUTCOME_DROPPED_EXTENSION_HEADERS;
	}
	/* Protocols without ports would find the VIP itself. */
	if (packet->protocol != IPPROTO_TCP && packet->protocol != IPPROTO_UDP)
		return OUTCOME_PASSED_NO_SERVICE;
	*service = find_service(generation, packet, packet->destination_port, packet->protocol);
	return *service ? OUTCOME_NONE : OUTCOME_PASSED_NO_SERVICE;
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
	__u64 *turn;

	if (known && !(known->closing && (event & EVENT_OPEN))) {
		backend = backend_at(generation, known->backend);
		if (backend && backend->generation == known->generation) {
			if ((event & EVENT_CLOSE) && !known->closing)
				known->closing = 1;
			return backend->index;
		}
	}
	if (!(event & EVENT_OPEN))
		return TRACK_UNKNOWN;
	turn = bpf_map_lookup_elem(&turns, &service->id);
	if (!turn || !service->table_size)
		return TRACK_NO_BACKEND;
	backend = slot_backend(generation, service,
			       __sync_fetch_and_add(turn, 1) % service->table_size);
	if (!backend)
		return TRACK_NO_BACKEND;
	fresh.backend = backend->index;
	fresh.generation = backend->generation;
	bpf_map_update_elem(&flows, key, &fresh, BPF_ANY);
	return fresh.backend | TRACK_OPENED;
}

/* choice is a backend, and whether this packet opens a flow. */
struct choice {
	struct backend *backend;
	bool opens;
};

/* choose_by_hash is for schedulers that are a function of the packet. */
static __always_inline void choose_by_hash(void *generation, const struct packet *packet,
					   const struct service *service, struct choice *choice)
{
	choice->opens = opens_connection(packet);
	choice->backend = slot_backend(generation, service,
				       hash_scale(hash_flow(packet), service->table_size));
}

/* choose_by_turn is for schedulers that choose when a flow opens. */
static __always_inline void choose_by_turn(void *generation, const struct packet *packet,
					   const struct service *service, struct choice *choice)
{
	struct flow_key key = {
		.service = service->id,
		.port = packet->source_port,
	};
	__u32 event = 0;
	__u64 tracked;

	__builtin_memcpy(key.address, packet->source, sizeof(key.address));
	if (packet->protocol == IPPROTO_UDP || opens_connection(packet))
		event |= EVENT_OPEN;
	if (packet->tcp_flags & (TCP_FIN | TCP_RST))
		event |= EVENT_CLOSE;
	tracked = track_flow(&key, service, generation, event);
	if (tracked & TRACK_UNKNOWN) {
		choose_by_hash(generation, packet, service, choice);
		return;
	}
	if (tracked & TRACK_NO_BACKEND)
		return;
	choice->backend = backend_at(generation, (__u32)tracked);
	choice->opens = !!(tracked & TRACK_OPENED);
}

/* select_backend chooses, and says why there is no choice. */
static __always_inline enum outcome select_backend(void *generation, const struct packet *packet,
						   const struct service *service,
						   struct choice *choice)
{
	if (!service->table_size)
		return OUTCOME_DROPPED_NO_BACKEND;
	if (service->scheduler == SCHEDULER_MAGLEV) {
		/* Only backends that are up are members. */
		choose_by_hash(generation, packet, service, choice);
		return choice->backend ? OUTCOME_NONE : OUTCOME_DROPPED_NO_BACKEND;
	}
	choose_by_turn(generation, packet, service, choice);
	if (!choice->backend)
		return OUTCOME_DROPPED_NO_BACKEND;
	return choice->backend->up ? OUTCOME_NONE : OUTCOME_DROPPED_BACKEND_DOWN;
}
