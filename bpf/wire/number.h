/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers: of connections, which give their addresses, ports and first sequence number; and those by which server ports
 * recognise their answers. */
#pragma once

#include <bpf/bpf_endian.h>

#include "../lib/hash.h"
#include "../lib/headers.h"
#include "maps.h"

/* wire_mix is the finalizer of SplitMix64 (G. Steele, D. Lea and C. Flood, 2014). */
static __always_inline __u64 wire_mix(__u64 x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static __always_inline __u32 wire_word(__u32 epoch, __u32 tries, enum wire_state state)
{
	return epoch << 16 | (tries & 0xff) << 8 | state;
}

static __always_inline __u32 wire_epoch_of(__u32 word) { return word >> 16; }
static __always_inline __u32 wire_tries_of(__u32 word) { return word >> 8 & 0xff; }
static __always_inline enum wire_state wire_state_of(__u32 word) { return word & 0xff; }

/* wire_first is the client's first sequence number: it distinguishes packets of an earlier connection with the same
 * addresses and ports. */
static __always_inline __u32 wire_first(__u32 slot, __u32 epoch)
{
	return wire_mix((settings.seed ^ (__u64)slot << 16 ^ (epoch & 0xffff)) + HASH_MULTIPLIER);
}

/* wire_tuple is a connection's client port (index), address and source port. */
struct wire_tuple {
	__u32 client;
	__be32 address;
	__be16 port;
};

/* Neighbouring numbers are of neighbouring client ports, then addresses: a
 * balancer that hashes or queues by one of them sees many. */
static __always_inline struct wire_tuple wire_tuple(__u32 slot)
{
	/* Remainders by subtraction: the operator would cost another division. */
	__u32 clients = settings.clients ?: 1, addresses = settings.addresses ?: 1;
	__u32 rest = slot / clients, client = slot - rest * clients & (WIRE_PORTS - 1);
	__u32 round = rest / addresses;
	struct wire_tuple tuple = {
		.client = client,
		.address = bpf_htonl(settings.client[client].first + rest - round * addresses),
		.port = bpf_htons(settings.first_port + round),
	};

	return tuple;
}

/* wire_slot is the inverse, and `capacity` or more for addresses and ports that no connection has. */
static __always_inline __u32 wire_slot(__u32 client, __be32 address, __be16 source_port)
{
	__u32 a = bpf_ntohl(address) - settings.client[client & (WIRE_PORTS - 1)].first;
	__u32 p = bpf_ntohs(source_port) - settings.first_port;

	if (a >= settings.addresses || p >= settings.ports)
		return ~0U;
	return (p * settings.addresses + a) * settings.clients + client;
}

/* wire_client_of is the client port that has an address, and `clients` for an unknown one. It is verified by itself:
 * each end of its loop would be a path through all that follows. */
__noinline __u32 wire_client_of(__be32 address)
{
	/* Of prefixes of 24 bits, one after the other, this is the one. */
	__u32 i = (bpf_ntohl(address) - settings.client[0].first) >> 8 & (WIRE_PORTS - 1);

	if (i < settings.clients && bpf_ntohl(address) - settings.client[i].first < settings.addresses)
		return i;
	for (i = 0; i < WIRE_PORTS; i++) {
		if (i >= settings.clients || bpf_ntohl(address) - settings.client[i].first < settings.addresses)
			break;
	}
	return i < settings.clients ? i : settings.clients;
}

/* wire_next is the MAC address that a connection's packets go to. */
static __always_inline __u64 wire_next(__u32 slot)
{
	return settings.next[settings.nexts > 1 ? slot % settings.nexts & (WIRE_PORTS - 1) : 0];
}

/* A server's first sequence number is a keyed hash of the client's address and port, the same at all server ports, with
 * the port's index on top: an acknowledgement identifies the port that generated it, and how much of the response was
 * received (D. J. Bernstein's SYN cookies, RFC 4987 section 3.6, with another content). */
#define WIRE_OFFSET_BITS 26
#define WIRE_OFFSET_MASK ((1U << WIRE_OFFSET_BITS) - 1)

static __always_inline __u32 wire_cookie(__be32 address, __be16 source_port)
{
	return wire_mix(~settings.seed ^ ((__u64)address << 16 | source_port));
}
