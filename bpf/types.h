/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the data plane and the control plane both know. Go gets these types
 * through bpf2go; nothing here is declared a second time. */
#pragma once

#include <linux/types.h>

/* outcome is how a packet ended. Each packet ends in exactly one. The names
 * (without the prefix) are what a user reads. */
enum outcome {
	/* Sent on to a backend. */
	OUTCOME_FORWARDED,
	/* Left to the kernel's own stack. */
	OUTCOME_PASSED_OTHER_HOST,
	OUTCOME_PASSED_NOT_IP,
	OUTCOME_PASSED_NO_SERVICE,
	/* Lost, for the reason in the name. */
	OUTCOME_DROPPED_MALFORMED,
	OUTCOME_DROPPED_FRAGMENT,
	OUTCOME_DROPPED_EXTENSION_HEADERS,
	OUTCOME_DROPPED_NO_BACKEND,
	OUTCOME_DROPPED_BACKEND_DOWN,
	OUTCOME_COUNT,
	/* Not an end: the packet goes on to the next step. */
	OUTCOME_NONE,
};

/* agreement holds numbers on which data plane and control plane must agree. */
enum agreement {
	/* Slots in which a service may be, from that of its hash on. */
	SERVICE_PROBES = 8,
	/* Reserved by IANA; 0 would make a key of zeros. */
	PROTOCOL_ANY = 255,
};

/* service_key4 and service_key6 name a service. Addresses and ports are in
 * network byte order. A key of port 0 and protocol PROTOCOL_ANY stands for the
 * VIP as a whole: packets that bear no port (fragments) are known by it. */

struct service_key4 {
	__be32 address;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

struct service_key6 {
	__be32 address[4];
	__be16 port;
	__u8 protocol;
	__u8 pad[5];
};

enum scheduler {
	/* The hash of the flow picks the slot: no state. */
	SCHEDULER_MAGLEV,
	/* A turn picks the slot for a new flow, and the flow table keeps it. */
	SCHEDULER_ROUND_ROBIN,
};

/* service is what the data plane needs to choose a backend. */
struct service {
	/* Index of the service's first slot. A slot is two bytes, the number of a
	 * member of the service from 0: a table that does not fit into the
	 * second-level cache would cost most packets a miss. */
	__u32 table_base;
	/* Number of slots; 0 where no backend is usable. */
	__u32 table_size;
	/* Index of the service's first member. */
	__u32 member_base;
	/* Stays the same across configurations; part of a flow's key and the
	 * index of the service's turn. */
	__u32 id;
	/* enum scheduler */
	__u32 scheduler;
};

/* service_slot4 and service_slot6 are the elements of a hash table with open
 * addressing, made by the control plane: a service is in the slot of its hash
 * or in one of the SERVICE_PROBES - 1 that follow (the table wraps around). An
 * empty slot has a key of zeros. A lookup costs a load and a comparison; the
 * kernel's own hash map would cost every packet a call besides. */
struct service_slot4 {
	struct service_key4 key;
	struct service service;
	/* A power of two of bytes: an element never straddles a cache line. */
	__u32 pad;
};

struct service_slot6 {
	struct service_key6 key;
	struct service service;
	__u32 pad[5];
};

/* backend is where packets go. It stands in two maps: among the members of its
 * service, where a table's slots find it, and under its index, where flows do. */
struct backend {
	/* What a frame to it begins with: its MAC address, and ours. */
	__u8 destination[6];
	__u8 source[6];
	/* Stays the same for as long as the backend is configured. */
	__u32 index;
	/* Rises each time the index is given to another backend, so that a flow
	 * of the former owner is not mistaken for one of the new. */
	__u32 generation;
	/* 1 while the MAC is known and packets may be sent. */
	__u32 up;
	/* A power of two of bytes: an element never straddles a cache line. */
	__u64 pad;
};

/* backend_count is kept per CPU and per backend. */
struct backend_count {
	__u64 packets;
	/* IP packet length: headers and payload, without the Ethernet frame. */
	__u64 bytes;
	/* New flows where they are tracked; otherwise SYNs sent on, which
	 * includes retransmitted ones. */
	__u64 connections;
	/* Keeps an element from straddling two cache lines. */
	__u64 pad;
};

/* flow_key names a flow: the client's end and the service. An IPv4 address is
 * in the first word, the other three are 0. Network byte order. */
struct flow_key {
	__be32 address[4];
	__u32 service;
	__be16 port;
	__u16 pad;
};

/* flow is the backend that a flow was given. */
struct flow {
	__u32 backend;
	/* backend.generation at that time. */
	__u32 generation;
	/* 1 once the client has sent FIN or RST: its next SYN is a new flow. */
	__u32 closing;
};

/* settings are fixed when a program is loaded. */
struct settings {
	/* The interface's own MAC address: frames for others are not ours. */
	__u8 mac[6];
	__u16 pad;
	/* Where the vectors of the generation begin, in bytes. The hash table of
	 * IPv4 services is at 0. */
	__u32 services6;
	__u32 table;
	__u32 members;
	__u32 backends;
	/* The sizes of the services' hash tables, powers of two, minus 1. */
	__u32 services4_mask;
	__u32 services6_mask;
	/* A hash is shifted right by this: of a product, the high bits depend on
	 * all bits of its factors, and the low ones on few. */
	__u32 services4_shift;
	__u32 services6_shift;
	/* How many elements the other vectors have. */
	__u32 table_slots;
	__u32 members_count;
	__u32 backends_count;
};
