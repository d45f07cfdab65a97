/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The local and peer address of a socket, as the application sees them, as a struct packet: the rest of the balancer
 * handles them as those of a packet that the socket is about to send. */
#pragma once

#include "maps.h"
#include "../select/lookup.h"
#include "../parse.h"

/* The third word of an IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2). */
#define MAPPED bpf_htonl(0xffff)

/* is_ours reports whether a socket is in this network namespace, and has a protocol that services have. */
static __always_inline bool is_ours(struct bpf_sock_addr *ctx)
{
	if (ctx->protocol != IPPROTO_TCP && ctx->protocol != IPPROTO_UDP)
		return false;
	return bpf_get_netns_cookie(ctx) == local.netns;
}

/* read_peer_address reads the peer address that a system call has as its argument, or is about to return, into the
 * packet's destination. `ipv6` is the family of the socket; the packet has that of the address. */
static __always_inline void read_peer_address(struct bpf_sock_addr *ctx, bool ipv6, struct packet *packet)
{
	__builtin_memset(packet, 0, sizeof(*packet));
	packet->protocol = ctx->protocol;
	packet->destination_port = ctx->user_port;
	if (!ipv6) {
		packet->destination[0] = ctx->user_ip4;
		return;
	}
	if (!ctx->user_ip6[0] && !ctx->user_ip6[1] && ctx->user_ip6[2] == MAPPED) {
		packet->destination[0] = ctx->user_ip6[3];
		return;
	}
	packet->ipv6 = true;
	packet->destination[0] = ctx->user_ip6[0];
	packet->destination[1] = ctx->user_ip6[1];
	packet->destination[2] = ctx->user_ip6[2];
	packet->destination[3] = ctx->user_ip6[3];
}

/* write_peer_address replaces the peer address by another of the same family. */
static __always_inline void write_peer_address(struct bpf_sock_addr *ctx, bool ipv6, bool address6,
					       const __be32 *address, __be16 port)
{
	ctx->user_port = port;
	if (!ipv6) {
		ctx->user_ip4 = address[0];
	} else if (!address6) {
		ctx->user_ip6[3] = address[0];
	} else {
		ctx->user_ip6[0] = address[0];
		ctx->user_ip6[1] = address[1];
		ctx->user_ip6[2] = address[2];
		ctx->user_ip6[3] = address[3];
	}
}

/* read_local_address reads the socket's bound address and port into the packet's source. Of a socket that is not bound
 * yet, the address is the VIP, from which the kernel would send to its own address, and the port is any. False if the
 * application has bound the socket to a VIP itself. */
static __always_inline bool read_local_address(struct bpf_sock_addr *ctx, struct packet *packet)
{
	struct bpf_sock *sk = ctx->sk;
	struct packet own = {};

	if (!sk)
		return false;
	packet->source_port = sk->src_port ? bpf_htons(sk->src_port) : bpf_get_prandom_u32();
	if (packet->ipv6) {
		own.ipv6 = true;
		own.destination[0] = sk->src_ip6[0];
		own.destination[1] = sk->src_ip6[1];
		own.destination[2] = sk->src_ip6[2];
		own.destination[3] = sk->src_ip6[3];
	} else {
		own.destination[0] = sk->src_ip4;
	}
	if (!(own.destination[0] | own.destination[1] | own.destination[2] | own.destination[3])) {
		__builtin_memcpy(packet->source, packet->destination, sizeof(packet->source));
		return true;
	}
	__builtin_memcpy(packet->source, own.destination, sizeof(packet->source));
	return kind_of(&own) != KIND_VIP;
}
