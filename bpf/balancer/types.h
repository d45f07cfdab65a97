/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types that the data plane and the control plane share. Go gets them through bpf2go; none is declared a second time.
 * The fields of pinned maps' elements and the enums in them keep their names, by which builds compare their layouts
 * (sharedmaps/layout.go). */
#pragma once

#include <linux/types.h>

/* outcome is the verdict on a packet, with its reason. Each packet has exactly one. Users read the names without the
 * prefix. */
enum outcome {
	/* Sent on to a backend. */
	OUTCOME_FORWARDED,
	/* A backend's reply, sent on to its client. */
	OUTCOME_RETURNED,
	/* An ICMP error reports to its sender that it is too big. */
	OUTCOME_ANSWERED_TOO_BIG,
	/* An ICMP error reports to its sender that its TTL expired. */
	OUTCOME_ANSWERED_TIME_EXCEEDED,
	/* Could not be forwarded and was answered, as its service is configured: by a TCP reset, or, UDP, by an ICMP error
	 * "port unreachable". Unanswered, the same packets end as OUTCOME_DROPPED_NO_BACKEND and the outcomes after it, in
	 * this order. */
	OUTCOME_RESET_NO_BACKEND,
	OUTCOME_RESET_BACKEND_DOWN,
	OUTCOME_RESET_NO_FLOW,
	OUTCOME_RESET_NO_PORT,
	OUTCOME_RESET_NO_ADDRESS,
	OUTCOME_RESET_FLOW_TABLE_FULL,
	OUTCOME_RESET_RATE_LIMIT,
	OUTCOME_RESET_CONNECTION_LIMIT,
	OUTCOME_UNREACHABLE_NO_BACKEND,
	OUTCOME_UNREACHABLE_BACKEND_DOWN,
	OUTCOME_UNREACHABLE_NO_FLOW,
	OUTCOME_UNREACHABLE_NO_PORT,
	OUTCOME_UNREACHABLE_NO_ADDRESS,
	OUTCOME_UNREACHABLE_FLOW_TABLE_FULL,
	OUTCOME_UNREACHABLE_RATE_LIMIT,
	OUTCOME_UNREACHABLE_CONNECTION_LIMIT,
	/* Left to the kernel's own stack. */
	OUTCOME_PASSED_OTHER_HOST,
	OUTCOME_PASSED_NOT_IP,
	OUTCOME_PASSED_NO_SERVICE,
	/* Unchanged: from a backend's endpoint of mode nat, to this host itself or without a route, so not a reply of the
	 * service. */
	OUTCOME_PASSED_NOT_FORWARDED,
	/* Unchanged: from a backend's endpoint of mode nat, to a destination that by the configuration is not a client of
	 * the service. */
	OUTCOME_PASSED_UNTRANSLATED,
	/* Unchanged: from a backend's endpoint of mode nat, whose service tracks every flow, but part of no flow. */
	OUTCOME_PASSED_NO_FLOW,
	/* For a VIP, after the control plane's clock has stopped for longer than permitted: struct head, `orphaned`. */
	OUTCOME_PASSED_ORPHANED,
	/* For a VIP that another balancer holds: `standby`. */
	OUTCOME_PASSED_BACKUP,
	/* A reply, rewritten, which the kernel routes. */
	OUTCOME_PASSED_TO_ROUTE,
	/* Lost, for the reason in the name. */
	OUTCOME_DROPPED_MALFORMED,
	OUTCOME_DROPPED_FRAGMENT,
	OUTCOME_DROPPED_EXTENSION_HEADERS,
	OUTCOME_DROPPED_TOO_BIG,
	OUTCOME_DROPPED_TIME_EXCEEDED,
	OUTCOME_DROPPED_NO_ROUTE,
	OUTCOME_DROPPED_NO_ROOM,
	/* Its flow is not known, or has ended, while flows are moved: struct head, `moving`. */
	OUTCOME_DROPPED_FLOWS_MOVING,
	/* From a client that its service's lists deny. */
	OUTCOME_DROPPED_DENIED,
	/* From here on: packets that a service may have answered instead. */
	OUTCOME_DROPPED_NO_BACKEND,
	OUTCOME_DROPPED_BACKEND_DOWN,
	OUTCOME_DROPPED_NO_FLOW,
	OUTCOME_DROPPED_NO_PORT,
	/* From a client that the backend would reply to directly, and the balancer has no address to source-NAT it to. */
	OUTCOME_DROPPED_NO_ADDRESS,
	OUTCOME_DROPPED_FLOW_TABLE_FULL,
	/* A new flow that a limit of its service or of all backends refuses. */
	OUTCOME_DROPPED_RATE_LIMIT,
	OUTCOME_DROPPED_CONNECTION_LIMIT,
	OUTCOME_COUNT,
	/* No verdict yet: the packet continues to the next step. */
	OUTCOME_NONE,
	/* No verdicts either: the sender is to get an ICMP error "too big" or "time exceeded". */
	OUTCOME_TOO_BIG,
	OUTCOME_TIME_EXCEEDED,
};

/* agreement holds numbers on which data plane and control plane must agree. */
enum agreement {
	/* Slots in which a service may be, from the slot of its hash on. */
	SERVICE_PROBES = 8,
	/* Interfaces that a balancer can have. */
	MAX_INTERFACES = 16,
	/* The bits of the sequence's length in the number before a table: see struct block. */
	SEQUENCE_BITS = 17,
	/* Reserved by IANA; 0 would make a key of zeros. */
	PROTOCOL_ANY = 255,
	/* A bit of the protocol in the key of a hairpin, whose service has the key without the bit: see SERVICE_HAIRPIN. */
	PROTOCOL_HAIRPIN = 128,
	/* Prefixes of near clients that an interface can have, in each family. */
	MAX_NEAR = 16,
	/* No address of the pool of full NAT has this number: it means backend.local. */
	POOL_LOCAL = 0xffff,
};

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

/* endpoint has the VIP and port that a reply's source is translated to (mode nat): those of the service whose backend
 * sends it. The tables of endpoints are made like those of the services, with the backend's address and port as the
 * key; port 0 and PROTOCOL_ANY are the wildcard entry of an address. */
struct endpoint {
	__be32 vip[4];
	__be16 port;
	/* service.mss */
	__u16 mss;
	/* The backend's index. */
	__u32 backend;
	/* service.id where its flows are tracked, or NO_SERVICE. */
	__u32 service;
	/* Which prefixes in `prefixes` are of hosts that are no clients of its service; 0: none.
	 * Below 2^24. */
	__u32 exceptions;
};

/* no_service is the id that no service has. */
enum no_service {
	NO_SERVICE = 0x7fffffff,
};

struct endpoint_slot4 {
	struct service_key4 key;
	struct endpoint endpoint;
	__u64 pad[3];
};

struct endpoint_slot6 {
	struct service_key6 key;
	struct endpoint endpoint;
	__u64 pad;
};

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

/* refusal holds numbers of the penalty for refused connections. */
enum refusal {
	/* Seconds after the last refusal for which the backend does not count as less loaded than the others. */
	REFUSAL_LASTS = 60,
	/* The largest penalty that is still doubled. */
	REFUSAL_MOST = 1 << 30,
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
	/* Its flows are counted: SERVICE_TRACKED. */
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

/* head is the header of a generation's memory. */
struct head {
	/* Milliseconds, written by the control plane a few times a second, so that reading the time costs one load. It
	 * stops while the control plane does. */
	__u32 clock;
	/* Not 0 where an entry was made in a table of flows since the control plane last checked. */
	__u32 remembered;
	/* Not 0 where a backend has refused a connection since the control plane last checked. */
	__u32 refused;
	/* Not 0 where a packet from a backend to the pool of full NAT that no flow is known of
	 * is to be answered: a service of that mode has SERVICE_ANSWERS. */
	__u32 pool_answers;
	/* The number of the control plane's snapshot that describes this memory: if a killed control plane has left two
	 * files, its successor reads this one. */
	__u64 snapshot;
	/* When the clock was last seen to move, in nanoseconds of the monotonic clock; 0 where
	 * it is not watched (orphan.bpf.c). */
	__u64 moved;
	/* Timeout, in milliseconds, after which a stopped clock makes the program fail open: packets for the VIPs are
	 * passed to the kernel; 0 disables it. */
	__u32 orphan_timeout;
	/* Two halves of a word that packets read as one: not 0 where packets for VIPs are passed to the kernel. The clock
	 * has stopped for longer than orphan_timeout; */
	__u16 orphaned;
	/* another balancer holds the VIPs: written by the control plane. */
	__u16 standby;
	/* While flows are copied from other tables into those in use: the deadline, in nanoseconds of the monotonic clock,
	 * in case the control plane is killed meanwhile; 0 otherwise. See flows_are_moving(). */
	__u64 moving;
	__u32 pad[4];
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

/* prefix_key is the key of a longest-prefix match in a list. */
struct prefix_key {
	/* The prefix length: leading bits of the fields after this one. */
	__u32 bits;
	/* endpoint.exceptions, or service.clients. */
	__u32 list;
	__be32 address[4];
};

/* prefix_verdict is the verdict of a list on the addresses of a prefix. */
enum prefix_verdict {
	PREFIX_UNTRANSLATED = 1,
	PREFIX_ALLOWED,
	PREFIX_DENIED,
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

/* fragment_key names a datagram of which only the first fragment bears ports
 * (RFC 791 section 3.2, RFC 8200 section 4.5). */
struct fragment_key {
	__be32 source[4];
	__be32 destination[4];
	/* IPv4: 16 bits. */
	__be32 identification;
	/* 0 for IPv6. */
	__u8 protocol;
	__u8 pad[3];
};

/* fragment is the outcome of a datagram's first fragment, which the others share. */
struct fragment {
	__u64 seen;
	/* The addresses after translation, in the modes that translate them. */
	__be32 source[4];
	__be32 destination[4];
	__u32 backend;
	__u32 generation;
	/* enum outcome: forwarded, returned or passed. */
	__u8 outcome;
	/* enum mode, and the TOS of mode dscp. */
	__u8 mode;
	__u8 tos;
	__u8 pad;
	/* hash_flow() of the first. */
	__u32 hash;
};

/* allowance is the rate limiter of a CPU's answers. */
struct allowance {
	/* Coarse monotonic clock, in nanoseconds. */
	__u64 since;
	__u64 used;
};

/* vector is the location of one of the generation's hash tables. */
struct vector {
	/* Where it begins, in bytes. */
	__u32 at;
	/* Its size, a power of two, minus 1. */
	__u32 mask;
	/* The right shift of a hash: the high bits of a product depend on all bits of its factors, the low bits on few. */
	__u32 shift;
};

/* near4 and near6 are prefixes of near clients: addresses whose bits under the mask are these. */
struct near4 {
	__be32 address;
	__be32 mask;
};

struct near6 {
	__be32 address[4];
	__be32 mask[4];
};

/* settings are fixed when a program is loaded. */
struct settings {
	/* The interface's own MAC address: frames for others are not ours. */
	__u8 mac[6];
	/* The ports that full NAT sends from, in host byte order. */
	__u16 first_port;
	__u16 last_port;
	/* 1 makes a traced program select and rewrite, and store nothing. */
	__u8 dry_run;
	/* 1 where answers to health checks may come. */
	__u8 checks;
	/* 1 if a service treats clients differently by their address: by SERVICE_LISTED, or by SERVICE_HAIRPIN while there
	 * are near clients. */
	__u8 clients;
	/* 1 where a service has SERVICE_IS_HAIRPIN, and the ports that those send from, in host byte order; 0 where there
	 * are none for them. */
	__u8 hairpins;
	__u16 hairpin_first_port;
	__u16 hairpin_last_port;
	/* 1 where applications of this host connect to services: backends reply to them at an address of the host's own. */
	__u8 local;
	/* 1 where the processor may order reads and writes otherwise than the program does. */
	__u8 weak;
	/* The interface that the program is attached to. */
	__u32 interface;
	/* The interfaces with such a program; interfaces_count is 0 if frames may be redirected to any interface. */
	__u32 interfaces[MAX_INTERFACES];
	__u32 interfaces_count;
	/* The configured modes, as bits. Code for other modes is not in the loaded program. */
	__u32 modes;
	/* The configured schedulers other than SCHEDULER_HASH, as bits, likewise. */
	__u32 schedulers;
	struct vector services4;
	struct vector services6;
	struct vector endpoints4;
	struct vector endpoints6;
	/* Where the other vectors begin, in bytes, and how many elements they have. Slots
	 * and members share their memory. The spare backends are counted among the
	 * backends. */
	__u32 table;
	__u32 table_slots;
	__u32 members;
	__u32 members_count;
	__u32 backends;
	__u32 backends_count;
	/* How many of them have an index. */
	__u32 backends_indices;
	/* Buckets of the tables of proven and of unproven flows; and a secret that places flows in them. */
	__u32 flow_buckets;
	__u32 newcomer_buckets;
	__u32 return_buckets;
	__u64 flow_secret;
	/* Full NAT's addresses by family, 16 bytes each, zeros for the number of a removed address; and the numbers, 4
	 * bytes each, of the addresses whose ports new flows get: the others belong to other balancers. */
	__u32 pool4;
	__u32 pool4_count;
	__u32 own4;
	__u32 own4_count;
	__u32 pool6;
	__u32 pool6_count;
	__u32 own6;
	__u32 own6_count;
	/* Answers that each CPU may make in a second. */
	__u32 too_big_rate;
	/* The near clients whose packets come in on the interface. */
	__u32 near4_count;
	__u32 near6_count;
	struct near4 near4[MAX_NEAR];
	struct near6 near6[MAX_NEAR];
};
