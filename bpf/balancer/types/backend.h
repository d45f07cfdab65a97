/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Backends, and what is counted of each. */
#pragma once

#include <linux/types.h>

/* backend is the destination of packets. It is in two vectors: among the members of its service, which slots refer to,
 * and under its index, which flows refer to. A cache line long. Members are not changed while packets may read them. In
 * the row of an index only `next` changes: a new backend is written to a spare row first. */
struct backend {
	/* The Ethernet addresses of a frame to it: the next hop's, and ours. */
	__u8 destination[6];
	__u8 source[6];
	/* The interface that frames leave by, as settings.interface. */
	__u32 interface;
	/* Its address, and the one of ours that is the source of tunnel packets. An IPv4 address is in the first word.
	 * Network byte order, as all addresses and ports. */
	__be32 address[4];
	__be32 local[4];
	/* Stays the same for as long as the backend is configured. */
	__u32 index;
	/* Rises each time the index is given to another backend, so that a flow of the index's previous backend is not
	 * mistaken for one of the new backend. */
	__u16 generation;
	/* In the row of an index: 0, or the number, from 1, of the spare row with the current values. Spare rows follow the
	 * last index. */
	__u16 next;
	__be16 port;
	/* The path MTU to it, in bytes. */
	__u16 mtu;
	/* Its share of new flows; 0: none. 1 if the scheduler does not use weights. */
	__u16 weight;
	/* 1 while the MAC is known and packets of flows may be sent. */
	__u8 up;
	/* 1 where the address is IPv6. */
	__u8 ipv6;
};

/* host is a backend of a service with SERVICE_GROUPED, found by the one thing that all services of the group share: its
 * address, which each of them has under another index. A service's hosts follow its slots, from the next cache line on:
 * first one that says by `number` how many places there are, a power of two, and by `index` the group's id; then the
 * places of a hash table with open addressing, in which a host is in the place of its number's hash or in one of the
 * HOST_PROBES - 1 that follow. Empty places are zeros. */
struct host {
	/* 48 bits. For IPv4, the first word of the address; for IPv6, a hash of 47 bits, and the highest bit. */
	__u64 number;
	/* The backend's. */
	__u32 index;
	__u16 generation;
	__u16 pad;
};

/* host_table holds numbers of such tables. */
enum host_table {
	HOST_PROBES = 8,
	/* Slots in a cache line, and slots in the size of a host. */
	LINE_SLOTS = 32,
	HOST_SLOTS = 8,
};

/* backend_load is how many flows a backend has, by its index, and how many it may have. Data plane and control plane
 * write it: active by atomic additions, full by the data plane alone. Half a cache line long. */
struct backend_load {
	/* Flows in the tables that have not ended, of services that are tracked. */
	__u32 active;
	/* At upper (0: no bound) the backend is full until it has less than lower. */
	__u32 upper;
	__u32 lower;
	__u32 full;
	/* Flows that the schedulers count in addition, because the backend has refused
	 * connections (refusal.h); and the seconds since it last did, which the control plane
	 * counts. Limits do not count them. */
	__u32 penalty;
	__u32 quiet;
	__u32 pad[2];
};

/* backend_count is kept per CPU and per backend: a cache line. */
struct backend_count {
	__u64 packets;
	/* IP packet length as received: headers and payload, without the Ethernet
	 * frame. */
	__u64 bytes;
	/* New flows where they are tracked; otherwise SYNs sent on, which
	 * includes retransmitted ones. */
	__u64 connections;
	/* Likewise for replies that return through the balancer (NAT). */
	__u64 returned_packets;
	__u64 returned_bytes;
	/* Passive health checks, in modes that see the backend's packets (NAT): its replies to clients show whether it
	 * serves. SYNs that it has answered by SYN and ACK, repeated ones included. */
	__u64 answered;
	/* SYNs that it has answered by RST: no program listens, or a firewall rejects. */
	__u64 refused;
	/* ICMP errors "destination unreachable" that it sent itself, for packets of clients. */
	__u64 unreachable;
};
