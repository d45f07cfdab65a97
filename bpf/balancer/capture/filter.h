/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The conditions of a filter on a packet as received. */
#pragma once

#include "maps.h"

/* capture_differs returns the bits of an address that differ from those wanted, as far as the mask has them. */
static __always_inline __be32 capture_differs(const __be32 *address, const __be32 *wanted,
					      const __be32 *mask, bool ipv6)
{
	__be32 bits = (address[0] & mask[0]) ^ wanted[0];

	if (ipv6)
		bits |= ((address[1] & mask[1]) ^ wanted[1]) | ((address[2] & mask[2]) ^ wanted[2]) |
			((address[3] & mask[3]) ^ wanted[3]);
	return bits;
}

/* capture_masked compares an address where the filter's mask has bits. */
static __always_inline bool capture_masked(const __be32 *address, const __be32 *wanted,
					   const __be32 *mask)
{
	return !capture_differs(address, wanted, mask, true);
}

/* capture_tuple compares the addresses and ports of a packet as the client sees them. */
static __always_inline bool capture_tuple(const struct capture_filter *filter, __u8 protocol,
					  const __be32 *client, __be16 client_port,
					  const __be32 *vip, __be16 vip_port)
{
	if (!capture_masked(client, filter->client, filter->client_mask) ||
	    !capture_masked(vip, filter->vip, filter->vip_mask))
		return false;
	if (!trace_has_ports(protocol) || !(client_port | vip_port))
		return true;
	return (!filter->client_port || filter->client_port == client_port) &&
	       (!filter->vip_port || filter->vip_port == vip_port);
}

/* capture_is_pooled_port says whether full NAT, or a hairpin, sends from a port in host byte order. */
static __always_inline bool capture_is_pooled_port(__u16 port)
{
	return (port >= loaded.first_port && port <= loaded.last_port) ||
	       (port >= loaded.hairpin_first_port && port <= loaded.hairpin_last_port);
}

/* capture_is_pooled says whether full NAT, or a hairpin, may have sent from the port that a packet is for. A packet
 * without ports may quote one that has. */
static __always_inline bool capture_is_pooled(const struct trace_tuple *packet)
{
	__u16 port = bpf_ntohs(packet->destination_port);

	return !trace_has_ports(packet->protocol) || !port || capture_is_pooled_port(port);
}

/* capture_may_be_reply says whether a packet, as received, may be a reply that the filter matches. The client of a
 * reply of full NAT is not known yet. */
static __always_inline bool capture_may_be_reply(const struct capture_filter *filter,
						 const struct trace_tuple *packet)
{
	if (has_mode(MODE_FULLNAT) && capture_is_pooled(packet))
		return true;
	return has_mode(MODE_NAT) &&
	       capture_masked(packet->destination, filter->client, filter->client_mask);
}

/* capture_may_match tests the conditions that depend on the packet as received, but for the sample. */
static __always_inline bool capture_may_match(const struct capture_filter *filter,
					      const struct trace_tuple *packet)
{
	/* A filter's number is written when all else of it is there. */
	filter = READ_AFTER(is_weak(), filter, &filter->id);
	if (!filter->id || (filter->interface && filter->interface != loaded.interface) ||
	    (filter->family && filter->family != packet->family) ||
	    (filter->protocol && filter->protocol != packet->protocol))
		return false;
	return capture_tuple(filter, packet->protocol, packet->source, packet->source_port,
			     packet->destination, packet->destination_port) ||
	       capture_may_be_reply(filter, packet);
}

/* capture_may_be_service says whether a plain packet may be one of the service that the filter names: to its address,
 * or a reply. */
static __always_inline bool capture_may_be_service(const struct capture_filter *filter,
						   const struct trace_tuple *packet)
{
	if (!filter->service_port)
		return true;
	return (filter->service_port == packet->destination_port &&
		same_address(filter->service_vip, packet->destination)) ||
	       capture_may_be_reply(filter, packet);
}
