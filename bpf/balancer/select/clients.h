/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which clients a service serves, where it does not serve all. */
#pragma once

#include "../maps.h"
#include "../parse.h"
#include "../scratch.h"

/* checks_clients reports whether a service treats clients differently by their address. */
static __always_inline bool checks_clients(const struct service *service)
{
	return loaded.clients && (service->flags & (SERVICE_LISTED | SERVICE_HAIRPIN));
}

/* has_lists reports whether a service allows or denies clients. */
static __always_inline bool has_lists(const struct service *service)
{
	return loaded.clients && (service->flags & SERVICE_LISTED);
}

/* list_denies looks a client up in a list. The address is passed by value: a packet passed by reference would be kept
 * on the caller's stack. Scratch: prefix_key is its own. */
__noinline int list_denies(__u32 list, __u64 first, __u64 second)
{
	struct scratch *scratch = get_scratch();
	struct prefix_key *key;
	__u32 *verdict;

	if (!scratch)
		return true;
	key = &scratch->prefix_key;
	key->bits = 8 * (sizeof(*key) - sizeof(key->bits));
	key->address[0] = first;
	key->address[1] = first >> 32;
	key->address[2] = second;
	key->address[3] = second >> 32;
	key->list = list;
	verdict = bpf_map_lookup_elem(&prefixes, key);
	return !verdict || *verdict == PREFIX_DENIED;
}

/* clients_of returns the number of a service's list. */
static __always_inline __u32 clients_of(const struct service *service)
{
	return service->clients[0] | service->clients[1] << 8 | service->clients[2] << 16;
}

/* is_denied reports whether a service does not serve a packet's client. */
static __always_inline bool is_denied(const struct service *service, const struct packet *packet,
				      bool ipv6)
{
	if (!has_lists(service))
		return false;
	if (!ipv6)
		return list_denies(clients_of(service), packet->source[0], 0);
	return list_denies(clients_of(service), (__u64)packet->source[1] << 32 | packet->source[0],
			   (__u64)packet->source[3] << 32 | packet->source[2]);
}
