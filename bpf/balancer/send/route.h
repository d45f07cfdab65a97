/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The way back to a client: clients are anywhere, so the kernel's routes are
 * asked. */
#pragma once

#include "mirror.h"
#include "replies.h"
#include "replyhop.h"
#include "../hash.h"
#include "../link.h"
#include "../trace.h"
#include "translate.h"

/* Results of find_route. */
enum way {
	WAY_FOUND,
	/* The kernel must find it, or handles the packet itself. */
	WAY_KERNEL,
	/* The destination is an address of this host, or there is no route. */
	WAY_NOT_FORWARDED,
	/* The destination is one of the endpoint's exceptions. */
	WAY_UNTRANSLATED,
	/* It is part of no flow of the endpoint's. */
	WAY_NO_FLOW,
	WAY_TOO_BIG,
	WAY_NONE,
};

_Static_assert(sizeof(struct bpf_fib_lookup) == sizeof(((struct scratch *)0)->fib),
	       "a question for a route has another size");

/* ask asks for the route of a packet with these ends. */
static __always_inline long ask(ctx_t *ctx, const struct packet *packet, const __be32 *source,
				const __be32 *destination, struct bpf_fib_lookup *fib)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = ctx_interface(ctx);
	fib->l4_protocol = packet->protocol;
	/* Of a GSO packet the kernel looks at the segments itself. */
	fib->tot_len = ctx_packets(ctx) > 1 ? 0 : packet->length;
	if (packet->ipv6) {
		fib->family = AF_INET6;
		__builtin_memcpy(fib->ipv6_src, source, sizeof(fib->ipv6_src));
		__builtin_memcpy(fib->ipv6_dst, destination, sizeof(fib->ipv6_dst));
	} else {
		fib->family = AF_INET;
		fib->ipv4_src = source[0];
		fib->ipv4_dst = destination[0];
	}
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}

/* takes says whether frames can be sent to an interface. An XDP frame for one
 * without an XDP program may be lost without a word. */
static __always_inline bool takes(__u32 interface)
{
	if (!CTX_ONLY_OURS || !loaded.interfaces_count)
		return true;
#pragma unroll
	for (int i = 0; i < MAX_INTERFACES; i++)
		if (i < loaded.interfaces_count && loaded.interfaces[i] == interface)
			return true;
	return false;
}

/* way_owner tells ways to the same client apart: by the address that the packet's source is translated to; or, where
 * each flow has to be looked up, by the backend and the client's port. */
static __always_inline __u64 way_owner(const struct packet *packet, const struct translation *to)
{
	if (to->asked_of)
		return (__u64)to->destination_port << 32 | to->asked_of;
	return packet->ipv6 ? (__u64)to->source[1] << 32 | to->source[0] : to->source[0];
}

/* way_of returns the place of the route that packets with these ends take, if it is known; or NULL. On a dry run it
 * returns NULL, so that no answer is stored. */
static __always_inline struct known_way *way_of(const struct packet *packet,
						const struct translation *to)
{
	__u64 h = to->destination[0] * HASH_MULTIPLIER +
		  (way_owner(packet, to) + to->exceptions) * HASH_MULTIPLIER2;
	__u32 at;

	if (dry_run())
		return NULL;
	if (packet->ipv6)
		h += ((__u64)to->destination[3] << 32 | to->destination[2]) * HASH_MULTIPLIER3 +
		     ((__u64)to->source[3] << 32 | to->source[2]) * HASH_MULTIPLIER4;
	at = hash_mix(h) >> 32 & (WAYS - 1);
	return bpf_map_lookup_elem(&ways, &at);
}

/* way_stamp is the age mark of a way that is learned now: the tick of the clock plus the number of route changes that
 * the control plane has heard of. It is taken before the kernel is asked, so that a change after that makes the answer
 * stale. */
static __always_inline __u32 way_stamp(__u32 now)
{
	struct mirror *routes = reply_routes_of();

	return routes ? now + routes->epoch : now;
}

/* way_kind tells ways with the same ends apart: by family, by the kind of their owner, and by the list of exceptions
 * that the destination is not in. */
static __always_inline __u32 way_kind(const struct packet *packet, const struct translation *to)
{
	return to->exceptions << 8 | !!to->asked_of << 1 | packet->ipv6;
}

/* knows says whether a way is that of a packet, is still valid, and has an MTU that is large enough. One that was asked
 * for in another tick of the clock is not valid. Should the clock stand still, since the control plane does, the number
 * of packets bounds its use: routes and neighbours may change at any time. A change of a route or neighbour changes the
 * stamp. */
static __always_inline bool knows(ctx_t *ctx, const struct known_way *known,
				  const struct packet *packet, const struct translation *to,
				  __u32 stamp)
{
	if (known->destination[0] != to->destination[0] || known->owner != way_owner(packet, to) ||
	    known->asked != stamp || known->protocol != packet->protocol || !known->left ||
	    known->kind != way_kind(packet, to) || known->ingress != ctx_interface(ctx))
		return false;
	if (packet->ipv6 &&
	    (known->destination[1] != to->destination[1] ||
	     known->destination[2] != to->destination[2] ||
	     known->destination[3] != to->destination[3] || known->rest[0] != to->source[2] ||
	     known->rest[1] != to->source[3]))
		return false;
	return packet->length <= known->mtu ||
	       ctx_segment(ctx, packet->length, packet->transport + sizeof(struct tcphdr)) <=
		       known->mtu;
}

/* learn stores the kernel's answer. Of a GSO packet the kernel did not look at the route's own MTU. */
static __always_inline void learn(ctx_t *ctx, struct known_way *known,
				  const struct packet *packet, const struct translation *to,
				  __u16 mtu, const struct route *route, __u32 stamp)
{
	if (ctx_packets(ctx) > 1)
		return;
	known->owner = way_owner(packet, to);
	__builtin_memcpy(known->rest, to->source + 2, sizeof(known->rest));
	__builtin_memcpy(known->destination, to->destination, sizeof(known->destination));
	known->asked = stamp;
	known->ingress = ctx_interface(ctx);
	known->egress = route->interface;
	known->mtu = mtu;
	known->left = WAY_USES;
	known->protocol = packet->protocol;
	known->kind = way_kind(packet, to);
	__builtin_memcpy(known->macs, route->macs, MACS_LENGTH);
}

/* is_exception says whether a packet's destination is one of its endpoint's exceptions. Scratch:
 * prefix_key is its own. */
static __always_inline bool is_exception(const struct translation *to, struct scratch *scratch)
{
	struct prefix_key *key = &scratch->prefix_key;

	if (!to->exceptions)
		return false;
	key->bits = 8 * (sizeof(*key) - sizeof(key->bits));
	key->list = to->exceptions;
	__builtin_memcpy(key->address, to->destination, sizeof(key->address));
	return bpf_map_lookup_elem(&prefixes, key);
}

/* follow_mirror finds a reply's way in the mirror: false where the kernel is to be asked. */
static __always_inline bool follow_mirror(ctx_t *ctx, const struct packet *packet,
					  const struct translation *to, __u32 now,
					  struct route *route)
{
	struct mirror_hop *hop = packet->ipv6 ? mirrored(ctx, packet, to, now, true) :
						mirrored(ctx, packet, to, now, false);

	if (!hop)
		return false;
	route->interface = hop->interface == ctx_interface(ctx) ? 0 : hop->interface;
	if (route->interface && !takes(route->interface))
		return false;
	__builtin_memcpy(route->macs, hop->macs, MACS_LENGTH);
	route->mtu = hop->mtu;
	return true;
}

/* ask_route asks the kernel, and stores the answer in `known` if that is not NULL. With `doubts` it first asks
 * is_reply(), where there is something to ask. Scratch: takes what is_reply() and note_reply_hop() do; fib is its
 * own. */
static __always_inline enum way ask_route(ctx_t *ctx, const struct packet *packet,
					  const struct translation *to, struct known_way *known,
					  __u32 now, __u32 stamp, struct route *route,
					  bool doubts, bool notes)
{
	struct scratch *scratch = get_scratch();
	struct bpf_fib_lookup *fib;

	if (!scratch)
		return WAY_NONE;
	if (is_exception(to, scratch))
		return WAY_UNTRANSLATED;
	if (doubts && has_mode(MODE_NAT) && to->asked_of && !is_reply(packet, true))
		return WAY_NO_FLOW;
	if (notes && to->asked_of && follow_mirror(ctx, packet, to, now, route)) {
		if (known)
			learn(ctx, known, packet, to, route->mtu, route, stamp);
		return WAY_FOUND;
	}
	fib = (void *)scratch->fib;
	switch (ask(ctx, packet, to->source, to->destination, fib)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		if (!takes(fib->ifindex))
			return WAY_KERNEL;
		if (notes && !dry_run())
			note_reply_hop(fib, to, now, true);
		__builtin_memcpy(route->macs, fib->dmac, ETH_ALEN);
		__builtin_memcpy(route->macs + ETH_ALEN, fib->smac, ETH_ALEN);
		route->interface = fib->ifindex == ctx_interface(ctx) ? 0 : fib->ifindex;
		if (known)
			learn(ctx, known, packet, to, fib->mtu_result, route, stamp);
		return WAY_FOUND;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		if (notes && !dry_run())
			note_reply_hop(fib, to, now, false);
		return WAY_KERNEL;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		route->mtu = fib->mtu_result;
		return WAY_TOO_BIG;
	case BPF_FIB_LKUP_RET_NOT_FWDED:
		return WAY_NOT_FORWARDED;
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return WAY_NONE;
	}
	return WAY_KERNEL;
}

/* find_route_inline finds a packet's route: a known way, or else the kernel's, which takes several times as long to ask
 * as all the rest. Scratch: as ask_route(). */
static __always_inline enum way find_route_inline(ctx_t *ctx, const struct packet *packet,
						  const struct translation *to,
						  struct route *route, bool doubts,
						  bool notes)
{
	void *generation = current_generation();
	__u32 now = clock_of(generation), stamp;
	struct known_way *known;

	if (notes && !to->exceptions && !to->asked_of &&
	    follow_mirror(ctx, packet, to, now, route))
		return WAY_FOUND;
	known = way_of(packet, to);
	stamp = way_stamp(now);
	if (!known || !knows(ctx, known, packet, to, stamp))
		return ask_route(ctx, packet, to, known, now, stamp, route, doubts, notes);
	known->left--;
	__builtin_memcpy(route->macs, known->macs, MACS_LENGTH);
	route->interface = known->egress;
	return WAY_FOUND;
}

/* find_route is the same off the fast path, for ICMP errors of known flows, whose replies have their next hop noted.
 * Scratch: fib and prefix_key are its own. */
__noinline int find_route(ctx_t *ctx, const struct packet *packet, const struct translation *to,
			  struct route *route)
{
	if (!packet || !to || !route)
		return WAY_NONE;
	return find_route_inline(ctx, packet, to, route, false, false);
}
