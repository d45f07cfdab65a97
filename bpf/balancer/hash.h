/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hashes of services' keys, and of packets' addresses and ports. */
#pragma once

#include "parse.h"
#include "types.h"
#include "../lib/hash.h"

/* hash_service4 and hash_service6 hash a service's key; the search for it begins at the place that the high bits name.
 * The control plane computes the same. */
static __always_inline __u32 hash_service4(const struct service_key4 *key)
{
	return (*(__u64 *)key * HASH_MULTIPLIER) >> 32;
}

static __always_inline __u32 hash_service6(const struct service_key6 *key)
{
	const __u64 *words = (const __u64 *)key;

	return (words[0] * HASH_MULTIPLIER + words[1] * HASH_MULTIPLIER2 +
		words[2] * HASH_MULTIPLIER3) >> 32;
}

/* hash_source is the hash of a packet's client and a port. */
static __always_inline __u32 hash_source(const struct packet *packet, __be16 port)
{
	if (!packet->ipv6)
		return hash_client(packet->source[0], 0, port, false);
	return hash_client((__u64)packet->source[1] << 32 | packet->source[0],
			   (__u64)packet->source[3] << 32 | packet->source[2], port, true);
}

/* hash_flow is that of a packet's 5-tuple. */
static __always_inline __u32 hash_flow(const struct packet *packet)
{
	return hash_source(packet, packet->source_port);
}
