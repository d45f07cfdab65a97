/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The neighbours that replies are sent to, for the control plane to confirm. */
#pragma once

#include "../hash.h"
#include "../maps.h"
#include "../scratch.h"

/* From <sys/socket.h>, which does not compile for eBPF. */
#define AF_INET 2
#define AF_INET6 10

/* hop_of reads the next hop from the result of bpf_fib_lookup, which has a router's address, perhaps of the other
 * family (RFC 8950), in place of the destination. */
static __always_inline void hop_of(const struct bpf_fib_lookup *fib, const struct translation *to,
				   struct reply_hop *hop)
{
	bool router;

	__builtin_memset(hop, 0, sizeof(*hop));
	hop->interface = fib->ifindex;
	if (fib->family == AF_INET6) {
		__builtin_memcpy(hop->address, fib->ipv6_dst, sizeof(hop->address));
		router = hop->address[0] != to->destination[0] ||
			 hop->address[1] != to->destination[1] ||
			 hop->address[2] != to->destination[2] ||
			 hop->address[3] != to->destination[3];
		hop->flags = HOP_IPV6;
	} else {
		hop->address[0] = fib->ipv4_dst;
		router = hop->address[0] != to->destination[0];
		hop->flags = HOP_IPV4;
	}
	if (router)
		hop->flags |= HOP_ROUTER;
}

/* note_reply_hop records that a reply is sent to a neighbour, which is in the result of bpf_fib_lookup. A neighbour
 * whose MAC address the kernel does not know is recorded only if it was known before: otherwise a sender of spoofed
 * addresses could fill the table. Scratch: hop is its own. */
__noinline int note_reply_hop(const struct bpf_fib_lookup *fib, const struct translation *to,
			      __u32 now, bool known)
{
	struct scratch *scratch = get_scratch();
	struct reply_hop *hop, *noted;
	__u32 at;

	if (!scratch || !fib || !to)
		return 0;
	hop = &scratch->hop;
	hop_of(fib, to, hop);
	at = hash_mix(((__u64)hop->address[0] << 32 | hop->address[3]) * HASH_MULTIPLIER +
		      ((__u64)hop->address[2] << 32 | hop->address[1]) * HASH_MULTIPLIER2 +
		      ((__u64)hop->interface << 32 | hop->flags) * HASH_MULTIPLIER3) >>
		     32 &
	     (REPLY_HOPS - 1);
	noted = bpf_map_lookup_elem(&reply_hops, &at);
	if (!noted)
		return 0;
	if (noted->interface == hop->interface && noted->flags == hop->flags &&
	    noted->address[0] == hop->address[0] && noted->address[1] == hop->address[1] &&
	    noted->address[2] == hop->address[2] && noted->address[3] == hop->address[3]) {
		/* Other CPUs read the line, too. */
		if (noted->seen != now)
			noted->seen = now;
	} else if (known) {
		hop->seen = now;
		*noted = *hop;
	}
	return 0;
}
