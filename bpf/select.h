/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which service a packet is for, and which backend takes it. */
#pragma once

#include "hash.h"
#include "maps.h"
#include "parse.h"

/* find_service looks the destination up. With port and protocol 0 it tells
 * whether the address is a VIP at all. */
static __always_inline struct service *find_service(const struct packet *packet, __be16 port,
						    __u8 protocol)
{
	if (packet->ipv6) {
		struct service_key6 key = {
			.port = port,
			.protocol = protocol,
		};

		__builtin_memcpy(key.address, packet->destination, sizeof(key.address));
		return bpf_map_lookup_elem(&services6, &key);
	} else {
		struct service_key4 key = {
			.address = packet->destination[0],
			.port = port,
			.protocol = protocol,
		};

		return bpf_map_lookup_elem(&services4, &key);
	}
}

/* select_service finds the service, or says why there is none. */
static __always_inline enum outcome select_service(const struct packet *packet,
						   struct service **service)
{
	if (packet->fragment || packet->unwalked) {
		if (!find_service(packet, 0, 0))
			return OUTCOME_PASSED_NO_SERVICE;
		return packet->fragment ? OUTCOME_DROPPED_FRAGMENT :
					  OUTCOME_DROPPED_EXTENSION_HEADERS;
	}
	if (!packet->destination_port)
		return OUTCOME_PASSED_NO_SERVICE;
	*service = find_service(packet, packet->destination_port, packet->protocol);
	return *service ? OUTCOME_NONE : OUTCOME_PASSED_NO_SERVICE;
}

/* choice is a backend, its index, and whether this packet opens a flow. */
struct choice {
	struct backend *backend;
	__u32 index;
	bool opens;
};

/* choose_slot reads a slot of the service's table. */
static __always_inline enum outcome choose_slot(const struct service *service, __u32 slot,
						struct choice *choice)
{
	__u32 at = service->table_base + slot;
	__u32 *index = bpf_map_lookup_elem(&table, &at);

	if (!index)
		return OUTCOME_DROPPED_NO_BACKEND;
	choice->index = *index;
	choice->backend = bpf_map_lookup_elem(&backends, index);
	return choice->backend ? OUTCOME_NONE : OUTCOME_DROPPED_NO_BACKEND;
}

static __always_inline bool opens_connection(const struct packet *packet)
{
	return (packet->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/* choose_by_hash is for schedulers that are a function of the packet. */
static __always_inline enum outcome choose_by_hash(const struct packet *packet,
						   const struct service *service,
						   struct choice *choice)
{
	choice->opens = opens_connection(packet);
	return choose_slot(service, hash_scale(hash_flow(packet), service->table_size), choice);
}

/* choose_known returns whether the flow has a backend that still exists. */
static __always_inline bool choose_known(const struct flow *flow, struct choice *choice)
{
	choice->index = flow->backend;
	choice->backend = bpf_map_lookup_elem(&backends, &flow->backend);
	return choice->backend && choice->backend->generation == flow->generation;
}

/* choose_by_turn gives a new flow the next backend in turn. A TCP packet in
 * the middle of a flow that nobody remembers takes no turn and leaves no
 * entry, or strangers could spend both: its hash decides. */
static __always_inline enum outcome choose_by_turn(const struct packet *packet,
						   const struct service *service,
						   struct choice *choice)
{
	struct flow_key key = {
		.service = service->id,
		.port = packet->source_port,
	};
	bool opening = packet->protocol == IPPROTO_UDP || opens_connection(packet);
	bool closing = packet->tcp_flags & (TCP_FIN | TCP_RST);
	struct flow *known, flow = {};
	enum outcome outcome;
	__u64 *turn;

	__builtin_memcpy(key.address, packet->source, sizeof(key.address));
	known = bpf_map_lookup_elem(&flows, &key);
	if (known && choose_known(known, choice) && !(known->closing && opening)) {
		if (closing && !known->closing)
			known->closing = 1;
		return OUTCOME_NONE;
	}
	if (!opening)
		return choose_by_hash(packet, service, choice);

	turn = bpf_map_lookup_elem(&turns, &service->id);
	if (!turn)
		return OUTCOME_DROPPED_NO_BACKEND;
	outcome = choose_slot(service, __sync_fetch_and_add(turn, 1) % service->table_size, choice);
	if (outcome != OUTCOME_NONE)
		return outcome;
	choice->opens = true;
	flow.backend = choice->index;
	flow.generation = choice->backend->generation;
	bpf_map_update_elem(&flows, &key, &flow, BPF_ANY);
	return OUTCOME_NONE;
}

/* select_backend chooses, and says why there is no choice. */
static __always_inline enum outcome select_backend(const struct packet *packet,
						   const struct service *service,
						   struct choice *choice)
{
	enum outcome outcome;

	if (!service->table_size)
		return OUTCOME_DROPPED_NO_BACKEND;
	if (service->scheduler == SCHEDULER_MAGLEV)
		outcome = choose_by_hash(packet, service, choice);
	else
		outcome = choose_by_turn(packet, service, choice);
	if (outcome == OUTCOME_NONE && !choice->backend->up)
		return OUTCOME_DROPPED_BACKEND_DOWN;
	return outcome;
}
