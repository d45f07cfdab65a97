/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory for one packet at a time, for values that would not fit the stack of 512 bytes for all functions of a call
 * chain. A function that reads values there, or writes some for others, says so in the last line of its comment. */
#pragma once

#include "maps.h"
#include "parse.h"

/* translation has the addresses and ports that a packet is sent with, and its TOS and TTL. Network byte order; an IPv4
 * address is in the first word. */
struct translation {
	__be32 source[4];
	__be32 destination[4];
	__be16 source_port;
	__be16 destination_port;
	/* TOS or traffic class. */
	__u8 tos;
	/* The decrement of the TTL or hop limit: 1, or 0 where the kernel routes the packet and decrements it itself. */
	__u8 ttl_decrement;
	/* endpoint.exceptions, where the packet comes from an endpoint. */
	__u32 exceptions;
	/* One more than the backend's index, where the packet comes from an endpoint whose flows are tracked, and may be
	 * part of none: is_reply() tests that. 0 elsewhere. */
	__u32 verify_backend;
};

/* route is the next hop and interface that a packet is sent by. */
struct route {
	/* The MAC addresses that the frame begins with, see copy_macs. */
	__u8 macs[12];
	__u32 interface;
	/* The MTU, if the packet is too big for the route. */
	__u32 mtu;
};

/* tracking is the state that the steps of the selection for a flow share. */
struct tracking {
	/* The key and new entry of the flow; those of its client's affinity; and an entry that moves from one table to the
	 * other. */
	struct flow flow;
	struct flow client;
	struct flow moving;
	__u64 flow_hash;
	__u64 client_hash;
	/* The place of the flow's entry in the table of unproven flows: a place_t. */
	__u32 place;
	/* The place of the proven flow whose 5-tuple the packet's connection reuses (FLOW_CONTESTED): a place_t, or 0. */
	__u32 reused;
	/* The TCP sequence number of the packet, in network byte order. */
	__be32 sequence;
	/* The index of the slot's current backend, and of its previous one if it differs and is up; or NO_BACKEND. */
	__u32 current;
	__u32 previous;
	/* Flows of the slot may have an entry. */
	__u16 moved;
	/* The slot's previous backend differs, and is down. */
	__u16 orphaned;
	/* Full NAT: flow.source of the packet's flow. */
	struct pool_source source;
};

/* victim is the flow to evict for a new flow of full NAT that found no free port: of the evictable flows on the ports
 * tried, the one of lowest cost that has been idle for longest. */
struct victim {
	/* A place_t, and RETURN_PROVEN; 0 where there is none. */
	__u32 place;
	/* See eviction_cost(). */
	__u32 cost;
	/* In milliseconds. */
	__u32 idle;
	struct pool_source source;
};

struct scratch {
	struct packet packet;
	/* The path MTU in bytes, if the packet is too big. */
	__u32 mtu;
	/* The addresses and ports that the packet is sent with. */
	struct translation to;
	/* For an ICMP error: the packet that it quotes, that packet with source and destination exchanged, the translation
	 * of its flow's packets, and the translation of the quote. */
	struct packet quoted;
	struct packet opposite;
	struct translation flow;
	struct translation quote;
	struct tracking tracking;
	/* Full NAT: the 5-tuple of replies to a flow that begins or moves. */
	struct packet replies;
	struct victim victim;
	/* The packet, a FIN or RST of mode nat, has ended a flow, which may have been deleted since. */
	__u32 closes;
	/* The last new flow of full NAT on this CPU found no free port. */
	__u32 crowded;
	/* A struct bpf_fib_lookup: the parameters and result of a reply's route lookup. bpf2go does not support its
	 * unions. */
	__u64 fib[8];
	/* The next hop of that route. */
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

/* The program does not preempt itself: a CPU processes one packet at a time. */
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
