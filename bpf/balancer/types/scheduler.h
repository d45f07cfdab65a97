/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Schedulers, and their state of each service. */
#pragma once

#include <linux/types.h>

/* scheduler is the algorithm that selects the backend of a new flow. The selection of all but SCHEDULER_HASH is stored
 * in the flow table. */
enum scheduler {
	/* The hash of the flow, or of the client's address, picks a slot. */
	SCHEDULER_HASH,
	/* Round robin, weighted or not, in the sequence before the service's slots. */
	SCHEDULER_ROUND_ROBIN,
	/* Weighted least connections. */
	SCHEDULER_WEIGHTED_LEAST_CONN,
	/* Least connections, where all backends have the same weight. */
	SCHEDULER_LEAST_CONN,
	/* The less loaded backend of two random slots (M. Mitzenmacher, "The Power of Two Choices in Randomized Load
	 * Balancing", 2001). */
	SCHEDULER_TWO_CHOICES,
	/* The first backend that can take the flow, in the order of the configuration. */
	SCHEDULER_FIRST,
};

/* refusal holds numbers of the penalty for refused connections. */
enum refusal {
	/* Seconds after the last refusal for which the backend does not count as less loaded than the others. */
	REFUSAL_LASTS = 60,
	/* The largest penalty that is still doubled. */
	REFUSAL_MOST = 1 << 30,
};

/* turn_tracked reports whether a service's flows are counted (SERVICE_TRACKED), and since when. */
enum turn_tracked {
	TURN_TRACKED = 1,
	/* Not since the service was added: a flow from before may have no entry. Its backend is that of its slot then. */
	TURN_TRACKED_LATER = 2,
};

/* turn is the state of a service's schedulers and limits, and the source that full NAT's replies get, by the service's
 * id. Two cache lines long. */
struct turn {
	/* Counts the new flows. */
	__u64 next;
	/* The rate of new connections (ITU-T I.371, generic cell rate algorithm): the time at which the next connection is
	 * due, in nanoseconds of the monotonic clock; the interval of connections at the permitted rate; and how early a
	 * burst may be. */
	__u64 due;
	__u64 interval;
	__u64 burst;
	/* Flows in the tables that neither end has closed; and their maximum, 0 for any number. */
	__u32 active;
	__u32 cap;
	/* Full NAT: the source that replies get, and service.mss. */
	__be32 vip[4];
	__be16 vip_port;
	__u16 mss;
	/* The protocol of the service, an IANA number. */
	__u8 protocol;
	/* enum turn_tracked; 0: its flows are not counted. */
	__u8 tracked;
	__u8 pad[2];
	/* No member of the table that begins at that slot has fewer flows. The number is not valid for another table. */
	__u32 fewest;
	__u32 fewest_table;
	/* When the service, of mode nat, last had a flow without an entry, which it should have, in milliseconds of the
	 * clock of struct head, with the lowest bit set. The control plane resets it to 0 when that is too long ago to
	 * count. See is_reply(). */
	__u32 unremembered;
	/* Likewise, when a backend of the service was added again soon after its removal: it may still send packets of
	 * earlier flows, which have no entry. */
	__u32 came_back;
	/* Keeps two services from sharing a cache line. */
	__u32 rest[12];
};
