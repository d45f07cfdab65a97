/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Scratch memory of programs at sockets, whose stack is too small. They run in the thread that connects or sends, which
 * another such thread may preempt: each thread has memory of its own for the duration of its call. Included by
 * scratch.h. */
#pragma once

#include "types.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOCAL_THREADS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct scratch);
} scratches SEC(".maps");

static const struct scratch zero_scratch = {};

static __always_inline struct scratch *get_scratch(void)
{
	__u64 thread = bpf_get_current_pid_tgid();

	return bpf_map_lookup_elem(&scratches, &thread);
}

/* acquire_scratch allocates this thread's memory, which release_scratch() frees; NULL where too many threads have
 * some. */
static __always_inline struct scratch *acquire_scratch(void)
{
	__u64 thread = bpf_get_current_pid_tgid();

	bpf_map_update_elem(&scratches, &thread, &zero_scratch, BPF_ANY);
	return bpf_map_lookup_elem(&scratches, &thread);
}

static __always_inline void release_scratch(void)
{
	__u64 thread = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&scratches, &thread);
}
