/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory for one packet at a time, for values that would not fit the stack: 512 bytes for all functions of a chain of
 * calls. A function that takes values from it, or leaves some there for others, says so in the last line of its
 * comment. */
#pragma once

#include "maps.h"
#include "parse.h"

/* translation has the addresses and ports that a packet leaves with, and its TOS and TTL. Network byte order; an IPv4
 * address is in the first word. */
struct translation {
	__be32 source[4];
	__be32 destination[4];
	__be16 source_port;
	__be16 destination_port;
	/* TOS or traffic class. */
	__u8 tos;
	/* By how much the TTL or hop limit becomes less: 1, or 0 where the kernel routes the
	 * packet and decrements it itself. */
	__u8 hops;
	/* endpoint.exceptions, where the packet comes from an endpoint. */
	__u32 exceptions;
	/* One more than the backend's index, where the packet comes from an endpoint whose flows
	 * are remembered, and may be part of none: is_reply() is to be asked. 0 elsewhere. */
	__u32 asked_of;
};

/* route is the way that a packet leaves by. */
struct route {
	/* The MAC addresses that the frame begins with, see copy_macs. */
	__u8 macs[12];
	__u32 interface;
	/* Of a packet that is too big for its way: the largest size that fits. */
	__u32 mtu;
};

/* tracking is the state that the steps of the decision about a flow hand to each other. */
struct tracking {
	/* The flow's key, and the entry to be made of it; the same of its client's affinity; and an entry on its way from a
	 * table to another. */
	struct flow flow;
	struct flow client;
	struct flow moving;
	__u64 flow_hash;
	__u64 client_hash;
	/* Where the flow's entry is among the unproven: a place_t. */
	__u32 place;
	/* Where the proven flow is that the packet's connection contests (FLOW_CONTESTED): a
	 * place_t, or 0. */
	__u32 contested;
	/* The TCP sequence number of the packet, in network byte order. */
	__be32 sequence;
	/* By their index, the backend whose slot it is, and the one whose slot it was
	 * where that is another and can take packets; or NO_BACKEND. */
	__u32 now;
	__u32 before;
	/* Flows of the slot may be remembered. */
	__u16 moved;
	/* The one whose slot it was is another, and cannot take packets. */
	__u16 orphaned;
	/* Full NAT: flow.source of the flow that was chosen. */
	struct pool_end source;
};

/* elder is, of the flows that hold ports which a new flow of full NAT has tried, and that may be evicted, the one that
 * costs the least, and has been silent for longest. */
struct elder {
	/* A place_t, and RETURN_PROVEN; 0 where there is none. */
	__u32 place;
	/* See cost_of(). */
	__u32 cost;
	/* In milliseconds. */
	__u32 silence;
	struct pool_end source;
};

struct scratch {
	struct packet packet;
	/* Of a packet that is too big: the largest size that fits its way, in bytes. */
	__u32 mtu;
	/* The addresses and ports that the packet leaves with. */
	struct translation to;
	/* Of an ICMP error: the packet that it quotes, that packet with source and destination exchanged, the translation
	 * of packets of its flow, and that of the quote. */
	struct packet quoted;
	struct packet opposite;
	struct translation flow;
	struct translation quote;
	struct tracking tracking;
	/* Full NAT: the 5-tuple of replies to a flow that begins or moves. */
	struct packet replies;
	struct elder elder;
	/* The packet, a FIN or RST of mode nat, ends a flow, which it may not be found by now. */
	__u32 ends;
	/* The last new flow of full NAT on this CPU found no port that was free. */
	__u32 crowded;
	/* A struct bpf_fib_lookup: the question for a reply's route, and the answer.
	 * Go cannot be told its unions. */
	__u64 fib[8];
	/* The neighbour that it leads to. */
	struct reply_hop hop;
	struct prefix_key prefix_key;
	/* Where an ICMP error goes. */
	struct route route;
	/* A fragment. */
	struct fragment_key fragment_key;
	struct fragment fragment;
};

#ifdef AT_SOCKETS
#include "local/scratch.h"
#else

/* The program does not preempt itself: a CPU has one packet at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline struct scratch *get_scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratches, &zero);
}

#endif
