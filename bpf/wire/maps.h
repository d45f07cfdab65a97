/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps of the packet-level tester; every port's programs share them. */
#pragma once

#include <bpf/bpf_helpers.h>

#include "types.h"
#include "../lib/order.h"

volatile const struct wire_settings settings;
volatile const struct wire_port port;

/* For bpf2go, which sees what a variable uses. */
const enum wire_count *unused_wire_count __attribute__((unused));
const enum wire_state *unused_wire_state __attribute__((unused));
const enum wire_latency *unused_wire_latency __attribute__((unused));

/* The connections by their number; the user space sets how many. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wire_connection);
} wire_connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wire_control);
} wire_control_word SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wire_progress);
} wire_progressed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wire_shared);
} wire_shared_word SEC(".maps");

/* By port: clients first, then servers. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * WIRE_PORTS);
	__type(key, __u32);
	__type(value, struct wire_counts);
} wire_port_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WIRE_LATENCIES);
	__type(key, __u32);
	__type(value, struct wire_histogram);
} wire_latencies SEC(".maps");

/* The last state that server ports saw of connections of unknown peers, which are no clients of ours. */
#define WIRE_UNKNOWN_PEERS (1 << 16)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WIRE_UNKNOWN_PEERS);
	__type(key, __u32);
	__type(value, __u64);
} wire_unknown_peers SEC(".maps");

/* The client ports' devices, in whatever network namespace they are. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, WIRE_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} wire_devices SEC(".maps");

static __always_inline struct wire_connection *wire_connection(__u32 slot)
{
	return bpf_map_lookup_elem(&wire_connections, &slot);
}

static __always_inline struct wire_control *wire_controlled(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&wire_control_word, &zero);
}

static __always_inline void wire_count(struct wire_counts *counts, enum wire_count what)
{
	counts->count[what]++;
}

/* wire_count_answered updates the number of connections that wait. */
static __always_inline void wire_count_answered(const struct wire_control *control)
{
	__u32 zero = 0;
	struct wire_shared *shared;

	if (!control->outstanding)
		return;
	shared = bpf_map_lookup_elem(&wire_shared_word, &zero);
	if (shared)
		__sync_fetch_and_add(&shared->answered, 1);
}

/* wire_log2 is the index of the highest bit that is set; of 0, 0. */
static __always_inline __u32 wire_log2(__u64 x)
{
	__u32 bits = 0;

	if (x >> 32)
		bits += 32, x >>= 32;
	if (x >> 16)
		bits += 16, x >>= 16;
	if (x >> 8)
		bits += 8, x >>= 8;
	if (x >> 4)
		bits += 4, x >>= 4;
	if (x >> 2)
		bits += 2, x >>= 2;
	return bits + (x >> 1);
}

/* wire_record adds a duration, in ns, to a histogram. */
__noinline int wire_record(enum wire_latency which, __u64 ns)
{
	struct wire_histogram *h = bpf_map_lookup_elem(&wire_latencies, &which);
	__u64 bucket = ns;
	__u32 power = wire_log2(ns);

	if (!h)
		return 0;
	/* Below 2^6 each value has a bucket. */
	if (power >= WIRE_SUB)
		bucket = ((__u64)(power - WIRE_SUB + 1) << WIRE_SUB) + ((ns >> (power - WIRE_SUB)) & ((1 << WIRE_SUB) - 1));
	/* The verifier must see the bound on the register that is used. */
	asm volatile("" : "+r"(bucket));
	if (bucket >= WIRE_BUCKETS)
		bucket = WIRE_BUCKETS - 1;
	h->bucket[bucket]++;
	h->count++;
	h->sum += ns;
	if (ns > h->max)
		h->max = ns;
	if (ns < h->min || h->count == 1)
		h->min = ns;
	return 0;
}
