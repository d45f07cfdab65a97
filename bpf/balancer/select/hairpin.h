/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hairpin NAT: clients to which backends would reply directly, since they are on one link, or the same host, are served
 * by full NAT, so that replies come back through us. */
#pragma once

#include "clients.h"
#include "lookup.h"

static __always_inline bool is_near4(const struct packet *packet)
{
#pragma unroll
	for (int i = 0; i < MAX_NEAR; i++) {
		if (i >= loaded.near4_count)
			break;
		if ((packet->source[0] & loaded.near4[i].mask) == loaded.near4[i].address)
			return true;
	}
	return false;
}

static __always_inline bool is_near6(const struct packet *packet)
{
#pragma unroll
	for (int i = 0; i < MAX_NEAR; i++) {
		__be32 differs = 0;

		if (i >= loaded.near6_count)
			break;
		for (int word = 0; word < 4; word++)
			differs |= (packet->source[word] & loaded.near6[i].mask[word]) ^
				   loaded.near6[i].address[word];
		if (!differs)
			return true;
	}
	return false;
}

/* is_near reports whether a service's packet is from a near client, which its hairpin serves. */
static __always_inline bool is_near(const struct service *service, const struct packet *packet,
				    bool ipv6)
{
	if (!has_hairpins() || !(service->flags & SERVICE_HAIRPIN))
		return false;
	return ipv6 ? is_near6(packet) : is_near4(packet);
}

/* needs_client_check reports whether a packet's client needs a check that the fast path does not make. */
static __always_inline bool needs_client_check(const struct service *service, const struct packet *packet,
					       bool ipv6)
{
	return checks_clients(service) &&
	       ((service->flags & SERVICE_LISTED) || is_near(service, packet, ipv6));
}

/* service_for_client is the service that serves a packet's client: the one that was found, or its hairpin. While a
 * configuration changes, a hairpin may not be there yet. The packet is in memory of its own, and not on the stack. */
static __always_inline struct service *service_for_client(void *generation, struct service *service,
							  const struct packet *packet, __u8 protocol)
{
	struct service *hairpin;

	if (!loaded.clients || !is_near(service, packet, packet->ipv6))
		return service;
	hairpin = search_service(generation, packet, packet->destination_port,
				 protocol | PROTOCOL_HAIRPIN);
	if (!hairpin)
		return service;
	trace_add_reason(TRACE_HAIRPIN);
	return hairpin;
}
