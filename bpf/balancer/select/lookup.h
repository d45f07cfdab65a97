/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Lookup of a packet's service, of a reply's endpoint, and of the slot's backend. */
#pragma once

#include "selection.h"
#include "schedule.h"
#include "../maps.h"
#include "../trace.h"
#include "../hash.h"
#include "../parse.h"

/* The control plane writes the value of a key before the key, whose last word comes last; and where a key moves to a
 * slot further on, it writes it there before it removes it here. So a value is read after its key, and the next slot
 * after a slot with another key: Directory.Publish() in mapmem/directory.go. */

/* after_key6 returns the slot number such that the slot is read after this key. */
static __always_inline __u32 after_key6(__u32 at, const __u64 *key)
{
	__u64 after = READ_AFTER(is_weak(), (__u64)at, key);

	after = READ_AFTER(is_weak(), after, key + 1);
	return READ_AFTER(is_weak(), after, key + 2);
}

static __always_inline struct service *find_service4(void *generation,
						     const struct service_key4 *key)
{
	__u32 at = hash_service4(key) >> loaded.services4.shift;

#pragma unroll
	for (int i = 0; i < SERVICE_PROBES; i++, at++) {
		struct service_slot4 *slot = service4_at(generation, at);

		if (*(__u64 *)&slot->key == *(__u64 *)key)
			return READ_AFTER(is_weak(), &slot->service, (__u64 *)&slot->key);
		if (!slot->key.address)
			return NULL;
		at = READ_AFTER(is_weak(), (__u64)at, (__u64 *)&slot->key);
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
			return READ_AFTER(is_weak(), &slot->service, found + 2);
		if (!(found[0] | found[1]))
			return NULL;
		at = after_key6(at, found);
	}
	return NULL;
}

/* find_service_at looks a VIP up. */
static __always_inline struct service *find_service_at(void *generation, bool ipv6,
						       const __be32 *address, __be16 port,
						       __u8 protocol)
{
	if (ipv6) {
		struct service_key6 key = {
			.port = port,
			.protocol = protocol,
		};

		__builtin_memcpy(key.address, address, sizeof(key.address));
		return find_service6(generation, &key);
	} else {
		struct service_key4 key = {
			.address = address[0],
			.port = port,
			.protocol = protocol,
		};

		return find_service4(generation, &key);
	}
}

/* find_service looks a packet's destination up. With port 0 and PROTOCOL_ANY it finds the wildcard entry of a VIP. */
static __always_inline struct service *find_service(void *generation, const struct packet *packet,
						    __be16 port, __u8 protocol)
{
	return find_service_at(generation, packet->ipv6, packet->destination, port, protocol);
}

/* search_service is find_service() off the fast path. It is not inlined, so that its variables are not on the stack of
 * its callers. */
static __noinline struct service *search_service(void *generation, const struct packet *packet,
						 __be16 port, __u8 protocol)
{
	return find_service(generation, packet, port, protocol);
}

/* No slot has this number. */
#define NO_ENDPOINT 0xffffffff

/* kind_of returns the kind of a packet's destination address, whatever the port: enum service_kind. Functions that are
 * not static, here and elsewhere, are verified by themselves, once; a static one would be verified again for each
 * call. */
__noinline int kind_of(const struct packet *packet)
{
	void *generation = current_generation();
	struct service *found;

	if (!packet)
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
			return READ_AFTER(is_weak(), (__u64)at, (__u64 *)&slot->key);
		if (!slot->key.address)
			break;
		at = READ_AFTER(is_weak(), (__u64)at, (__u64 *)&slot->key);
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
			return READ_AFTER(is_weak(), (__u64)at, found + 2);
		if (!(found[0] | found[1]))
			break;
		at = after_key6(at, found);
	}
	return NO_ENDPOINT;
}

/* search_endpoint looks up the endpoint that a packet comes from: the number of a slot, or NO_ENDPOINT. */
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

/* find_endpoint is the same off the fast path. With port 0 and PROTOCOL_ANY it finds the wildcard entry of a backend's
 * address. */
__noinline __u32 find_endpoint(const struct packet *packet, __u32 port, __u32 protocol)
{
	void *generation = current_generation();

	if (!packet)
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

/* endpoint_of returns the endpoint itself, or NULL. */
static __always_inline struct endpoint *endpoint_of(void *generation,
						    const struct packet *packet, __be16 port,
						    __u8 protocol)
{
	if (!has_mode(MODE_NAT))
		return NULL;
	return endpoint_at(generation, packet, find_endpoint(packet, port, protocol));
}

/* service_hash returns the hash that selects a packet's slot in its service's table. */
static __always_inline __u32 service_hash(const struct service *service,
					  const struct packet *packet)
{
	return hash_source(packet, service->flags & SERVICE_BY_SOURCE ? 0 : packet->source_port);
}

/* The flags of services for whose packets the hash alone does not select the backend. */
#define SERVICE_NEEDS_LOOKUP (SERVICE_TRACKED | SERVICE_MOVED | SERVICE_RATE)

/* select_by_hash selects a backend for services without flow entries; false for a moved slot. */
static __always_inline bool select_by_hash(void *generation, const struct packet *packet,
					   struct decision *decision)
{
	const struct service *service = decision->service;
	__u64 block = read_block(&service->current);
	__u32 slot = hash_scale(service_hash(service, packet), service->table_size);
	__u16 *found = slot_at(generation, (__u64)table_of(block) + slot);

	trace_slot(slot);
	if (!found)
		return true;
	decision->opens = opens_connection(packet);
	decision->backend = member_at(generation, (__u64)members_of(block) + (*found & SLOT_MEMBER));
	return !(*found & SLOT_MOVED);
}
