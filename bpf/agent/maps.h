/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The agent's maps, and its counters. */
#pragma once

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

/* Fixed at load: the verifier sees it as constants. */
volatile const struct agent_settings loaded = {};

/* Without a use that outlives the compiler, these types would not be in the
 * type information from which Go takes them. */
const enum agent_mode *unused_agent_mode __attribute__((unused));
const enum agent_outcome *unused_agent_outcome __attribute__((unused));
const enum agent_role *unused_agent_role __attribute__((unused));

/* agent_addresses are the addresses of this host and the VIPs, with their
 * roles (enum agent_role). Not preallocated: a host has a handful. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct agent_address);
	__type(value, __u32);
} agent_addresses SEC(".maps");

/* agent_counts are packets, by mode * AGENT_OUTCOME_COUNT + outcome. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, AGENT_MODE_COUNT * AGENT_OUTCOME_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} agent_counts SEC(".maps");

static __always_inline __u32 agent_roles(const struct agent_address *address)
{
	__u32 *roles = bpf_map_lookup_elem(&agent_addresses, address);

	return roles ? *roles : 0;
}

static __always_inline bool agent_has_mode(enum agent_mode mode)
{
	return loaded.modes & (1 << mode);
}

static __always_inline void agent_count(enum agent_mode mode, enum agent_outcome outcome,
					__u64 packets)
{
	__u32 key = mode * AGENT_OUTCOME_COUNT + outcome;
	__u64 *count = bpf_map_lookup_elem(&agent_counts, &key);

	if (count)
		*count += packets;
}
