/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The way back to a client: clients are anywhere, so the kernel's routes are
 * asked. */
#pragma once

#include "link.h"
#include "translate.h"

/* From <sys/socket.h>, which is not for eBPF. */
#define AF_INET 2
#define AF_INET6 10

/* route is a way. */
struct route {
	/* What the frame begins with, see copy_macs. */
	__u8 macs[MACS_LENGTH];
	__u32 interface;
	/* Of a packet that is too big for it: the size that would not be. */
	__u32 mtu;
};

/* What find_route says besides an outcome. */
enum way {
	WAY_FOUND,
	/* The kernel must find it, or knows what to do with the packet. */
	WAY_KERNEL,
	WAY_TOO_BIG,
	WAY_NONE,
};

_Static_assert(sizeof(struct bpf_fib_lookup) == sizeof(((struct scratch *)0)->fib),
	       "a question for a route has another size");

/* ask asks for the way of a packet with these ends. */
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

static __always_inline enum way find_route_inline(ctx_t *ctx, const struct packet *packet,
						  const struct translation *to,
						  struct route *route)
{
	struct scratch *scratch = get_scratch();
	struct bpf_fib_lookup *fib;

	if (!scratch)
		return WAY_NONE;
	fib = (void *)scratch->fib;
	switch (ask(ctx, packet, to->source, to->destination, fib)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		if (!takes(fib->ifindex))
			return WAY_KERNEL;
		__builtin_memcpy(route->macs, fib->dmac, ETH_ALEN);
		__builtin_memcpy(route->macs + ETH_ALEN, fib->smac, ETH_ALEN);
		route->interface = fib->ifindex == ctx_interface(ctx) ? 0 : fib->ifindex;
		return WAY_FOUND;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		route->mtu = fib->mtu_result;
		return WAY_TOO_BIG;
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return WAY_NONE;
	}
	return WAY_KERNEL;
}

/* find_route is the same off the common ways. */
__noinline int find_route(ctx_t *ctx, const struct packet *packet, const struct translation *to,
			  struct route *route)
{
	if (!packet || !to || !route)
		return WAY_NONE;
	return find_route_inline(ctx, packet, to, route);
}
