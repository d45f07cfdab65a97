/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Routes of replies to clients: from the mirror, the cache, or bpf_fib_lookup, since clients may be anywhere. */
#pragma once

#include "mirror.h"
#include "replies.h"
#include "replyhop.h"
#include "../hash.h"
#include "../link.h"
#include "../segment.h"
#include "../trace.h"
#include "translate.h"

/* route_result is the result of find_route(). */
enum route_result {
	ROUTE_FOUND,
	/* The kernel has to resolve the neighbour, or handles the packet itself. */
	ROUTE_KERNEL,
	/* The destination is an address of this host, or there is no route. */
	ROUTE_NOT_FORWARDED,
	/* The destination is one of the endpoint's exceptions. */
	ROUTE_UNTRANSLATED,
	/* The packet is part of no flow of the endpoint. */
	ROUTE_NO_FLOW,
	ROUTE_TOO_BIG,
	ROUTE_NONE,
};

_Static_assert(sizeof(struct bpf_fib_lookup) == sizeof(((struct scratch *)0)->fib),
	       "struct bpf_fib_lookup has another size");

/* fib_lookup looks up the route of a packet with these addresses. */
static __always_inline long fib_lookup(ctx_t *ctx, const struct packet *packet, const __be32 *source,
				       const __be32 *destination, struct bpf_fib_lookup *fib)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = ingress_interface(ctx);
	fib->l4_protocol = packet->protocol;
	/* Without a length, the kernel would let GSO packets of any segments pass. */
	fib->tot_len = segment_length(ctx, packet);
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

/* accepts_frames reports whether frames can be redirected to an interface. An XDP frame to an interface without an XDP
 * program may be lost silently. */
static __always_inline bool accepts_frames(__u32 interface)
{
	if (!CTX_ONLY_OURS || !loaded.interfaces_count)
		return true;
#pragma unroll
	for (int i = 0; i < MAX_INTERFACES; i++)
		if (i < loaded.interfaces_count && loaded.interfaces[i] == interface)
			return true;
	return false;
}

/* route_owner is the part of an entry's key that distinguishes routes to the same client: the address that the packet's
 * source is translated to; or, if each flow has to be looked up, the backend and the client's port. */
static __always_inline __u64 route_owner(const struct packet *packet, const struct translation *to)
{
	if (to->verify_backend)
		return (__u64)to->destination_port << 32 | to->verify_backend;
	return packet->ipv6 ? (__u64)to->source[1] << 32 | to->source[0] : to->source[0];
}

/* cached_route_of returns the cache entry that packets with these addresses have, valid or not; or NULL. On a dry run
 * it returns NULL, so that no result is stored. */
static __always_inline struct route_entry *cached_route_of(const struct packet *packet,
							   const struct translation *to)
{
	__u64 h = to->destination[0] * HASH_MULTIPLIER +
		  (route_owner(packet, to) + to->exceptions) * HASH_MULTIPLIER2;
	__u32 at;

	if (dry_run())
		return NULL;
	if (packet->ipv6)
		h += ((__u64)to->destination[3] << 32 | to->destination[2]) * HASH_MULTIPLIER3 +
		     ((__u64)to->source[3] << 32 | to->source[2]) * HASH_MULTIPLIER4;
	at = hash_mix(h) >> 32 & (ROUTE_CACHE_ENTRIES - 1);
	return bpf_map_lookup_elem(&ways, &at);
}

/* route_stamp is the version of a route that is looked up now: the tick of the clock plus the number of route changes
 * that the control plane was notified of. It is read before bpf_fib_lookup, so that a change after that invalidates the
 * result. */
static __always_inline __u32 route_stamp(__u32 now)
{
	struct mirror *routes = reply_routes_of();

	return routes ? now + routes->epoch : now;
}

/* route_kind returns the part of an entry's key with the family, the kind of owner, and the list of exceptions that the
 * destination is not in. */
static __always_inline __u32 route_kind(const struct packet *packet, const struct translation *to)
{
	return to->exceptions << 8 | !!to->verify_backend << 1 | packet->ipv6;
}

/* is_route_valid reports whether a cache entry matches a packet, is still valid, and has an MTU that is large enough.
 * An entry from another tick of the clock is not valid. If the clock stops with the control plane, the number of
 * packets bounds its use: routes and neighbours may change at any time. A change of a route or neighbour changes the
 * stamp. */
static __always_inline bool is_route_valid(ctx_t *ctx, const struct route_entry *entry,
					   const struct packet *packet, const struct translation *to,
					   __u32 stamp)
{
	if (entry->destination[0] != to->destination[0] || entry->owner != route_owner(packet, to) ||
	    entry->asked != stamp || entry->protocol != packet->protocol || !entry->left ||
	    entry->kind != route_kind(packet, to) || entry->ingress != ingress_interface(ctx))
		return false;
	if (packet->ipv6 &&
	    (entry->destination[1] != to->destination[1] ||
	     entry->destination[2] != to->destination[2] ||
	     entry->destination[3] != to->destination[3] || entry->rest[0] != to->source[2] ||
	     entry->rest[1] != to->source[3]))
		return false;
	return packet->length <= entry->mtu || segment_length(ctx, packet) <= entry->mtu;
}

/* cache_route stores the result of bpf_fib_lookup. */
static __always_inline void cache_route(ctx_t *ctx, struct route_entry *entry,
					const struct packet *packet, const struct translation *to,
					__u16 mtu, const struct route *route, __u32 stamp)
{
	entry->owner = route_owner(packet, to);
	__builtin_memcpy(entry->rest, to->source + 2, sizeof(entry->rest));
	__builtin_memcpy(entry->destination, to->destination, sizeof(entry->destination));
	entry->asked = stamp;
	entry->ingress = ingress_interface(ctx);
	entry->egress = route->interface;
	entry->mtu = mtu;
	entry->left = ROUTE_CACHE_USES;
	entry->protocol = packet->protocol;
	entry->kind = route_kind(packet, to);
	__builtin_memcpy(entry->macs, route->macs, MACS_LENGTH);
}

/* is_exception reports whether a packet's destination is one of its endpoint's exceptions. Scratch: prefix_key is its
 * own. */
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

/* lookup_mirror looks up a reply's route in the mirror: false where bpf_fib_lookup is needed. */
static __always_inline bool lookup_mirror(ctx_t *ctx, const struct packet *packet,
					  const struct translation *to, __u32 now,
					  struct route *route)
{
	struct mirror_hop *hop = packet->ipv6 ? mirrored(ctx, packet, to, now, true) :
						mirrored(ctx, packet, to, now, false);

	if (!hop)
		return false;
	route->interface = hop->interface == ingress_interface(ctx) ? 0 : hop->interface;
	if (route->interface && !accepts_frames(route->interface))
		return false;
	__builtin_memcpy(route->macs, hop->macs, MACS_LENGTH);
	route->mtu = hop->mtu;
	return true;
}

/* lookup_route calls bpf_fib_lookup, and stores the result in `entry` if that is not NULL. With `verify` it first calls
 * is_reply(), where the endpoint's flows are tracked. Scratch: reads what is_reply() and note_reply_hop() do; fib is
 * its own. */
static __always_inline enum route_result lookup_route(ctx_t *ctx, const struct packet *packet,
						      const struct translation *to, struct route_entry *entry,
						      __u32 now, __u32 stamp, struct route *route,
						      bool verify, bool record_hop)
{
	struct scratch *scratch = get_scratch();
	struct bpf_fib_lookup *fib;

	if (!scratch)
		return ROUTE_NONE;
	if (is_exception(to, scratch))
		return ROUTE_UNTRANSLATED;
	if (verify && has_mode(MODE_NAT) && to->verify_backend && !is_reply(packet, true))
		return ROUTE_NO_FLOW;
	if (record_hop && to->verify_backend && lookup_mirror(ctx, packet, to, now, route)) {
		if (entry)
			cache_route(ctx, entry, packet, to, route->mtu, route, stamp);
		return ROUTE_FOUND;
	}
	fib = (void *)scratch->fib;
	switch (fib_lookup(ctx, packet, to->source, to->destination, fib)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		if (!accepts_frames(fib->ifindex))
			return ROUTE_KERNEL;
		if (record_hop && !dry_run())
			note_reply_hop(fib, to, now, true);
		__builtin_memcpy(route->macs, fib->dmac, ETH_ALEN);
		__builtin_memcpy(route->macs + ETH_ALEN, fib->smac, ETH_ALEN);
		route->interface = fib->ifindex == ingress_interface(ctx) ? 0 : fib->ifindex;
		if (entry)
			cache_route(ctx, entry, packet, to, fib->mtu_result, route, stamp);
		return ROUTE_FOUND;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		if (record_hop && !dry_run())
			note_reply_hop(fib, to, now, false);
		return ROUTE_KERNEL;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		route->mtu = fib->mtu_result;
		return ROUTE_TOO_BIG;
	case BPF_FIB_LKUP_RET_NOT_FWDED:
		return ROUTE_NOT_FORWARDED;
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return ROUTE_NONE;
	}
	return ROUTE_KERNEL;
}

/* find_route_inline finds a packet's route: in the cache, or else by bpf_fib_lookup, which takes several times as long
 * as all the rest. Scratch: as lookup_route(). */
static __always_inline enum route_result find_route_inline(ctx_t *ctx, const struct packet *packet,
							   const struct translation *to,
							   struct route *route, bool verify,
							   bool record_hop)
{
	void *generation = current_generation();
	__u32 now = clock_of(generation), stamp;
	struct route_entry *entry;

	if (record_hop && !to->exceptions && !to->verify_backend &&
	    lookup_mirror(ctx, packet, to, now, route))
		return ROUTE_FOUND;
	entry = cached_route_of(packet, to);
	stamp = route_stamp(now);
	if (!entry || !is_route_valid(ctx, entry, packet, to, stamp))
		return lookup_route(ctx, packet, to, entry, now, stamp, route, verify, record_hop);
	entry->left--;
	__builtin_memcpy(route->macs, entry->macs, MACS_LENGTH);
	route->interface = entry->egress;
	return ROUTE_FOUND;
}

/* find_route is find_route_inline() off the fast path, for ICMP errors of known flows, whose replies have their next
 * hop recorded. Scratch: fib and prefix_key are its own. */
__noinline int find_route(ctx_t *ctx, const struct packet *packet, const struct translation *to,
			  struct route *route)
{
	if (!packet || !to || !route)
		return ROUTE_NONE;
	return find_route_inline(ctx, packet, to, route, false, false);
}
