/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tables of flows, and the one that finds a flow by its replies. */
#pragma once

#include <linux/types.h>

/* flow_state is the state of a flow's entry; it decides the flow's idle timeout. */
enum flow_state {
	FLOW_FREE,
	/* TCP: only the client's SYN was seen. */
	FLOW_OPENING,
	/* The first packet seen was in midstream, on a moved slot. */
	FLOW_SEEN,
	/* UDP: one packet. */
	FLOW_FIRST,
	/* TCP: the client has acknowledged something. */
	FLOW_ESTABLISHED,
	/* Established, and the client, or a sender that spoofs its address, has sent a SYN that reuses the 5-tuple for a
	 * connection that its backend cannot accept. That pending connection has an entry with the same key among the
	 * unproven, and replaces this one when it is proven. */
	FLOW_CONTESTED,
	/* UDP: more than one packet. */
	FLOW_UDP,
	/* TCP: the client, or the backend (where its packets are seen), has sent FIN. */
	FLOW_CLIENT_FIN,
	FLOW_BACKEND_FIN,
	/* Both have sent FIN, or one has sent RST. */
	FLOW_CLOSED,
	/* TCP: the backend has answered the SYN by RST (where its packets are seen). */
	FLOW_REFUSED,
	/* Both have sent FIN, the backend first (where its packets are seen): it holds the
	 * connection in TIME-WAIT (RFC 9293 section 3.3.2). */
	FLOW_TIME_WAIT,
	/* No flow, but an affinity: the backend of a client's next flow. Its first flow is unproven, or was proven. */
	FLOW_AFFINITY_NEW,
	FLOW_AFFINITY,
	FLOW_STATES,
};

/* pool_source is an address and port of the pool, which full NAT gives a flow's packets as their source. */
struct pool_source {
	__be16 port;
	/* The number of the address in the pool, or POOL_LOCAL. */
	__u16 address;
};

/* flow is a flow's key, and the backend and source that it got. An IPv4 address is in the first word, the other three
 * are 0. Network byte order. */
struct flow {
	__be32 address[4];
	/* service.id; with FLOW_KEY_AFFINITY, of a client and not of a flow. */
	__u32 service;
	/* backend.index, and backend.generation at that time. */
	__u32 backend;
	__be16 port;
	__u16 generation;
	union {
		/* Full NAT. Go has only this member of the union. */
		struct pool_source source;
		/* The other modes: the sequence number of the last SYN that was sent to the
		 * backend (RFC 9293 section 3.4.1), or 0 where none was. */
		__be32 syn;
	};
};

/* flow_table holds numbers of the tables of flows. */
enum flow_table {
	/* Flows in a bucket. */
	FLOW_BUCKET = 8,
	/* In place of a tag while a program, or the daemon, writes the flow. */
	FLOW_BUSY = 1,
	/* Bits of flow.service. With FLOW_KEY_GROUP, an affinity is that of a group of
	 * services: the rest is the group's id, and flow.backend and flow.generation are the
	 * low and the high part of a host's number (struct host). */
	FLOW_KEY_AFFINITY = 0x80000000,
	FLOW_KEY_GROUP = 0x40000000,
	/* The age in milliseconds at which a flow's time is refreshed: otherwise each packet would write it. */
	FLOW_NOTE_EVERY = 1000,
};

/* flow_bucket is the element of a table of flows: a cache line with tags, times and states, and the flows. A flow is in
 * one of two buckets. A tag is 16 bits of the flow's hash, 0 where there is none; a place is taken by exchanging the
 * word of its tag for one with FLOW_BUSY there, and is free again as soon as its tag is 0. */
struct flow_bucket {
#ifdef OTHER_LAYOUT
	/* For tests of upgrades: moves all fields that follow (scripts/other-build.sh). */
	__u64 other[8];
#endif
	/* Four tags each, the first in the low bits. */
	__u64 tags[2];
	/* When each was last seen, in milliseconds of the clock of struct head. */
	__u32 seen[8];
	/* enum flow_state of each, a byte each, the first in the low bits. */
	__u64 states;
	/* In the low half, the number of flows that overflowed from this home bucket into their second one; in the high
	 * half, a bit for the tag of each, by its lowest five bits. Both halves become 0 at once. */
	__u64 elsewhere;
	struct flow flows[8];
};

/* return_bucket is the element of the table that finds a full-NAT flow by the 5-tuple of its replies, from the backend
 * to the pool. Tags as in struct flow_bucket. An entry is not removed when its flow ends: it then leads to a flow with
 * another key, and is replaced, or removed by the control plane. A cache line long. */
struct return_bucket {
	/* Four tags each, the first in the low bits; of the second, two. */
	__u64 tags[2];
	/* Where the flow is: its number among the places of its table, from 1, and
	 * RETURN_PROVEN. */
	__u32 places[6];
	/* The low half of the hash of the flow's key: it identifies the flow of the entry. */
	__u32 owners[6];
};

/* return_table holds numbers of that table. */
enum return_table {
	/* Entries in a bucket. */
	RETURN_BUCKET = 6,
	/* A bit of a place: among the proven flows. */
	RETURN_PROVEN = 0x80000000,
};
