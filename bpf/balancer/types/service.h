/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Services, and the tables in which they are found. */
#pragma once

#include <linux/types.h>

#include "limits.h"

/* service_key4 and service_key6 name a service. Addresses and ports are in network byte order. A key of port 0 and
 * protocol PROTOCOL_ANY is the wildcard entry of a VIP, for packets without ports (fragments). */

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

/* service_flag are bits of service.flags. */
enum service_flag {
	/* The hash is of the client's address alone. */
	SERVICE_BY_SOURCE = 1,
	/* Every flow has an entry. */
	SERVICE_TRACKED = 2,
	/* Some slots have another backend than before: SLOT_MOVED is valid, and flows of such slots may have an entry. */
	SERVICE_MOVED = 4,
	/* The base table is valid: the slots as they were before the changes. */
	SERVICE_BASE = 8,
	/* A client's flows go to one backend for a while. */
	SERVICE_PERSISTENT = 16,
	/* The service has a rate of new connections. */
	SERVICE_RATE = 32,
	/* The service has a cap, or one of its backends an upper threshold. */
	SERVICE_LIMITED = 64,
	/* Packets that cannot be sent on are answered: TCP by a reset, UDP by an ICMP error. */
	SERVICE_ANSWERS = 128,
	/* With SERVICE_PERSISTENT: the service shares its clients' affinities with others,
	 * and its hosts follow its slots: struct host. */
	SERVICE_GROUPED = 256,
	/* A flow whose backend is down is closed, and its packets are answered by a reset. */
	SERVICE_RESETS = 512,
	/* The service does not serve every client: service.clients. */
	SERVICE_LISTED = 1024,
	/* Mode nat. Near clients, to which backends would reply directly, are served by another service, the hairpin: with
	 * the same backends, by full NAT, under the same key with PROTOCOL_HAIRPIN. */
	SERVICE_HAIRPIN = 2048,
	/* The service is a hairpin. Its flows have our address towards their backend (backend.local), with the number
	 * POOL_LOCAL, and ports of their own. */
	SERVICE_IS_HAIRPIN = 4096,
};

/* slot_bits: a slot is a member of its service, counted from 0, and whether the slot has another backend than in the
 * base table. */
enum slot_bits {
	SLOT_MEMBER = 0x7fff,
	SLOT_MOVED = 0x8000,
};

/* mode is how packets reach the backends of a service. */
enum mode {
	MODE_L2DSR,
	MODE_IPIP,
	MODE_GUE,
	MODE_DSCP,
	MODE_NAT,
	MODE_FULLNAT,
};

/* service_kind is the kind of an entry in the services' tables. */
enum service_kind {
	/* Nothing of ours. */
	KIND_NONE,
	/* A service, under its port and protocol. */
	KIND_SERVICE,
	/* An address that services have, and one that full NAT sends from: under
	 * port 0 and PROTOCOL_ANY. */
	KIND_VIP,
	KIND_POOL,
};

/* block is where a service's slots and its members lie: written and read as one word, so that a packet reads a
 * consistent pair. */
struct block {
	/* Index of the first slot, in slots of two bytes. The two slots before it are one
	 * number, low half first: how many members there are, shifted left by
	 * SEQUENCE_BITS, plus how many slots before those two hold the sequence in which
	 * members take turns (SCHEDULER_ROUND_ROBIN; 0 of the others). */
	__u32 table;
	/* Index of the first member. */
	__u32 members;
};

/* service has a service's settings and tables of backends. The blocks, each in one step, and the flags are the only
 * fields that change while packets read them. */
struct service {
	struct block current;
	/* With SERVICE_BASE: the slots and members before the transition. */
	struct block base;
	/* Number of slots; 0 if no backend is usable. */
	__u32 table_size;
	__u32 base_size;
	/* Stays the same across configurations; part of a flow's key and the
	 * index of the service's turn. */
	__u32 id;
	/* enum service_flag */
	__u16 flags;
	/* The upper limit of the MSS option of a SYN; 0: unlimited. */
	__u16 mss;
	/* enum scheduler, enum mode */
	__u8 scheduler;
	__u8 mode;
	/* The DSCP field, in the upper six bits, that encodes the VIP. */
	__u8 tos;
	/* enum service_kind */
	__u8 kind;
	/* With SERVICE_PERSISTENT: the prefix length of a client's address by which it has its affinity. */
	__u8 prefix;
	/* With SERVICE_LISTED: the number, its lowest byte first, of the list in `prefixes` of the
	 * clients that it serves, and does not. One prefix is of length 0, so that each address is
	 * in one of them. */
	__u8 clients[3];
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
	__u64 pad[2];
};

struct service_slot6 {
	struct service_key6 key;
	struct service service;
};
