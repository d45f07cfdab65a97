/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Groups of services that share their persistence: a client goes to one host by all of them. An index is a backend's in
 * its own service, so an affinity has the host's number, which follows from its address. */
#pragma once

#include "../hash.h"
#include "../maps.h"
#include "schedule.h"

/* host_number returns the number of a backend's host. */
static __always_inline __u64 host_number(const struct backend *backend)
{
	const __be32 *address = backend->address;
	__u64 first, last;

	if (!backend->ipv6)
		return address[0];
	first = (__u64)address[1] << 32 | address[0];
	last = (__u64)address[3] << 32 | address[2];
	return hash_mix(first * HASH_MULTIPLIER + last * HASH_MULTIPLIER2) >> 17 | 1ULL << 47;
}

/* hosts_of returns the location of a service's hosts: see host_at(). */
static __always_inline __u64 hosts_of(const struct service *service)
{
	__u64 end = (__u64)table_of(read_block(&service->current)) + service->table_size;

	return (end + LINE_SLOTS - 1) / LINE_SLOTS * (LINE_SLOTS / HOST_SLOTS);
}

/* group_of returns the id of a service's group, with FLOW_KEY_GROUP; 0 where no backend of the service accepts flows:
 * then it has no table either. */
static __always_inline __u32 group_of(void *generation, const struct service *service)
{
	struct host *head;

	if (!service->table_size)
		return 0;
	head = host_at(generation, hosts_of(service), hosts_count());
	return head ? head->index | FLOW_KEY_GROUP : 0;
}

/* backend_of_host returns the index of a service's backend on a host; PICK_NONE if it has none there. */
__noinline __u64 backend_of_host(const struct service *service, __u64 number)
{
	void *generation = current_generation();
	__u64 hosts, mask, home, count = hosts_count();
	struct backend *row;
	struct host *host;

	if (!service || !service->table_size)
		return PICK_NONE;
	hosts = hosts_of(service);
	host = host_at(generation, hosts, count);
	if (!host)
		return PICK_NONE;
	mask = host->number - 1;
	home = number * HASH_MULTIPLIER >> 32;
	for (__u32 i = 0; i < HOST_PROBES; i++) {
		host = host_at(generation, hosts + 1 + ((home + i) & mask), count);
		if (!host || !host->number)
			return PICK_NONE;
		if (host->number == number)
			break;
		if (i == HOST_PROBES - 1)
			return PICK_NONE;
	}
	row = backend_at(generation, host->index);
	return row && row->generation == host->generation ? host->index : PICK_NONE;
}
