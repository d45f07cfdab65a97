/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps of the programs at this host's sockets. All generations share them. */
#pragma once

#include "types.h"
#include "../maps.h"

volatile const struct local_settings local = {};

const enum local_agreement *unused_local_agreement __attribute__((unused));
const enum local_event *unused_local_event __attribute__((unused));
const enum peer_state *unused_peer_state __attribute__((unused));

/* local_sockets has the sockets with a backend, by their cookie. An entry is removed when its socket is closed; its
 * memory is allocated with the entry, not with the map. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOCAL_SOCKETS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct local_socket);
} local_sockets SEC(".maps");

/* local_events counts, by enum local_event. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOCAL_EVENTS);
	__type(key, __u32);
	__type(value, __u64);
} local_events SEC(".maps");

static __always_inline void count_event(enum local_event event)
{
	__u32 key = event;
	__u64 *count = bpf_map_lookup_elem(&local_events, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
}
