// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A watchdog of the control plane: whether it still updates the clock of the data plane. It runs by a bpf_timer,
 * independent of packets, and for as long as its map is pinned. */
#include <linux/bpf.h>
#include <linux/time.h>
#include <bpf/bpf_helpers.h>

#include "generation.h"

#define NSEC_PER_MSEC 1000000ULL
#define WATCH_INTERVAL (250 * NSEC_PER_MSEC)

struct watch {
	struct bpf_timer timer;
	/* The clock's value at the last check. */
	__u32 clock;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct watch);
} watches SEC(".maps");

/* check_clock compares the clock with its last reading. When the clock of a control plane that was only delayed moves
 * again, packets are balanced again. */
static int check_clock(void *map, __u32 *key, struct watch *watch)
{
	struct head *head = head_of(current_generation());
	__u64 now = bpf_ktime_get_ns();

	if (head->clock != watch->clock || !head->moved) {
		watch->clock = head->clock;
		head->moved = now;
	}
	head->orphaned = head->orphan_timeout && now - head->moved > head->orphan_timeout * NSEC_PER_MSEC;
	bpf_timer_start(&watch->timer, WATCH_INTERVAL, 0);
	return 0;
}

/* jeoul_orphan is run once, by BPF_PROG_TEST_RUN. It returns 0, or the error of the call that failed. */
SEC("tc")
int jeoul_orphan(struct __sk_buff *skb)
{
	__u32 key = 0;
	struct watch *watch = bpf_map_lookup_elem(&watches, &key);
	long err;

	if (!watch)
		return 1;
	err = bpf_timer_init(&watch->timer, &watches, CLOCK_MONOTONIC);
	if (!err)
		err = bpf_timer_set_callback(&watch->timer, check_clock);
	if (!err)
		err = bpf_timer_start(&watch->timer, 0, 0);
	return -err;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
