/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The settings that are fixed when a program is loaded, and the header of the memory that it reads. */
#pragma once

#include <linux/types.h>

#include "client.h"
#include "limits.h"

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
	/* The VLAN interfaces on this interface that have such a program: their protocols, in the upper 16 bits, and
	 * VLAN IDs, in host byte order. */
	__u32 vlans[MAX_INTERFACES];
	__u32 vlans_count;
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
