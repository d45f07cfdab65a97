/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The next hops of replies: looked up, mirrored from the kernel's routes, and noted. */
#pragma once

#include <linux/types.h>

/* route_entry is a cached result of bpf_fib_lookup: the next hop of replies with this source and destination, from the
 * kernel's routes and neighbours. An IPv4 address is in the first word, and the others are undefined. A cache line
 * long. */
struct route_entry {
	/* See route_owner(). */
	__u64 owner;
	/* The last two words of an IPv6 reply's source. */
	__be32 rest[2];
	__be32 destination[4];
	/* The version of the entry: see route_stamp(). */
	__u32 asked;
	/* The interface that the replies come in on, and the one that they leave by: 0 for
	 * the same. */
	__u32 ingress;
	__u32 egress;
	/* The MTU of the route, in bytes. */
	__u16 mtu;
	/* How many more packets may use the entry. */
	__u8 left;
	/* The protocol of the replies, because routing rules may match it; 0: an empty entry. */
	__u8 protocol;
	/* Destination and source, as in the frame. */
	__u8 macs[12];
	/* See route_kind(). */
	__u32 kind;
};

/* route_cache holds numbers of the table of such entries. */
enum route_cache {
	/* Entries of a CPU, a power of two. */
	ROUTE_CACHE_ENTRIES = 1024,
	/* How many packets use an entry before it is looked up again. */
	ROUTE_CACHE_USES = 255,
};

/* mirror_hop is a next hop of replies, as the control plane read it from the kernel. 32 bytes long. */
struct mirror_hop {
	/* Destination and source, as in the frame. */
	__u8 macs[12];
	__u32 interface;
	/* The MTU of the route, in bytes. */
	__u32 mtu;
	/* When a reply was last sent there, by the clock of struct head. */
	__u32 seen;
	__u32 unused[2];
};

/* mirror_net is an IPv6 network of 64 bits whose route differs from that of its first 16 bits. */
struct mirror_net {
	/* The first two words of its addresses, as in the packet. */
	__u64 key;
	/* The number of its next hop; 0: bpf_fib_lookup is needed. */
	__u32 hop;
	/* Not 0 where the hashes of several networks collide here: each needs bpf_fib_lookup. */
	__u32 crowded;
};

/* mirror_table holds numbers of the mirror of routes. */
enum mirror_table {
	/* Next hops, of which number 0 says that bpf_fib_lookup is needed; a power of two. */
	MIRROR_HOPS = 128,
	/* A bit beside the number of a next hop: a struct mirror_net may override it. */
	MIRROR_EXACT = 128,
	/* Places of struct mirror_net, a power of two. */
	MIRROR_NETS = 512,
	/* Numbers in a block, and blocks of a family: a number for each 16 bits that an address
	 * can begin with. */
	MIRROR_BLOCK = 64,
	MIRROR_BLOCKS = 1024,
	/* Jiffies within which the control plane's clock must move: 4 s at 100 Hz, 0.4 s at
	 * 1000 Hz. */
	MIRROR_LEASE = 400,
};

/* mirror_state has the families for which the mirror is valid. */
enum mirror_state {
	MIRROR_IPV4 = 1,
	MIRROR_IPV6 = 2,
};

/* mirror_block has the numbers of the next hops to addresses by their first 16 bits. */
struct mirror_block {
	__u8 hops[MIRROR_BLOCK];
};

/* mirror is the head of the mirror of the routes that replies take. The control plane clears `state` as soon as it is
 * notified of a change that it cannot interpret, waits for an RCU grace period, writes the new routes, waits again, and
 * sets `state`. */
struct mirror {
	/* See enum mirror_state; 0: each reply needs bpf_fib_lookup. */
	__u32 state;
	/* Incremented by each change, which invalidates entries cached before (struct route_entry). */
	__u32 epoch;
	__u64 rest[7];
	/* The clock of struct head as it was last seen to move, in the high half; and when, in jiffies, above a bit that
	 * reports whether that was soon after the reading before. Packets write it. */
	__u64 lease;
	__u64 rest2[7];
	struct mirror_hop hops[MIRROR_HOPS];
	struct mirror_net nets[MIRROR_NETS];
};

/* reply_hop is a neighbour that replies were sent to: their client itself, or the router before it. The kernel has its
 * MAC address, and does not probe whether that is still right, since a program's lookup does not count as a use of the
 * neighbour entry; so the control plane has to confirm it. */
struct reply_hop {
	/* An IPv4 address is in the first word, and the others are 0. */
	__be32 address[4];
	__u32 interface;
	/* When a reply was last sent there, by the clock of struct head. */
	__u32 seen;
	/* See enum hop_flag; 0 is no hop at all. */
	__u32 flags;
	__u32 unused;
};

/* hop_flag has the family of a reply_hop, and whether it is a router. */
enum hop_flag {
	HOP_IPV4 = 1,
	HOP_IPV6 = 2,
	/* It is a router for the replies, whose destination is another host. */
	HOP_ROUTER = 4,
};

/* hop_table holds numbers of the table of such hops. */
enum hop_table {
	/* Hops that are noted at most, a power of two. */
	REPLY_HOPS = 1024,
};
