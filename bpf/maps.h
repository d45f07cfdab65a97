/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps. Sizes of 1 are replaced when the program is loaded: every map is
 * as large as the configuration needs. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

/* Fixed at load: the verifier sees it as constants. */
volatile const struct settings loaded = {};

/* Without a use that outlives the compiler, the enums would not be in the
 * type information from which Go takes them. */
const enum outcome *unused_outcome __attribute__((unused));
const enum scheduler *unused_scheduler __attribute__((unused));

/* Made anew for each generation of the configuration, and never changed. */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct service_key4);
	__type(value, struct service);
} services4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct service_key6);
	__type(value, struct service);
} services6 SEC(".maps");

/* table holds every service's slots, one service after the other; a slot is
 * the index of a backend. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct backend);
} backends SEC(".maps");

/* Shared by all generations. */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct backend_count);
} backend_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OUTCOME_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} outcomes SEC(".maps");

/* turns counts the new flows of each round-robin service, by service id. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} turns SEC(".maps");

/* flows remembers the backend of each flow of the services that track them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");
