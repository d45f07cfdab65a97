// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Charges the kernel's packet work to the device it was done for.
 *
 * Packets that arrive are worked on in the NET_RX softirq, which runs on top of
 * whatever the core was doing: a process on one host of a laboratory is billed
 * for the packets of another. Within a softirq, devices are polled one after
 * the other; the time between the end of one poll and the end of the next is
 * what the second cost. It is added to the device, and to the network namespace
 * of the process that it ran on top of, which can then be relieved of it. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "kernel.h"

/* NET_RX_SOFTIRQ of include/linux/interrupt.h. */
#define NET_RX 3

struct napi_struct {
	struct net_device *dev;
} KERNEL;
struct nsproxy {
	struct net *net_ns;
} KERNEL;
struct task_struct {
	struct nsproxy *nsproxy;
} KERNEL;

/* charge_key names for which device work was done, and on top of whom. */
struct charge_key {
	/* The device, and the inode number of its namespace, as stat(2) shows it. */
	__u32 ifindex;
	__u32 netns;
	/* The namespace of the process that was interrupted. */
	__u32 billed;
};

/* Nanoseconds. One look-up a poll, and nothing shared between CPUs: what this
 * program costs is part of what it measures. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct charge_key);
	__type(value, __u64);
} charges SEC(".maps");

/* When the poll under way on this CPU began, in nanoseconds; 0 outside of a
 * softirq. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} since SEC(".maps");

static __always_inline __u64 *since_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&since, &zero);
}

SEC("tp_btf/softirq_entry")
int softirq_entry(__u64 *ctx)
{
	__u64 *began = since_here();

	if (began && ctx[0] == NET_RX)
		*began = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_exit(__u64 *ctx)
{
	__u64 *began = since_here();

	if (began && ctx[0] == NET_RX)
		*began = 0;
	return 0;
}

SEC("tp_btf/napi_poll")
int napi_poll(__u64 *ctx)
{
	struct napi_struct *napi = (void *)ctx[0];
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 *began = since_here(), *sum, now, cost;
	struct charge_key key = {};

	/* A threaded NAPI has a thread of its own, and no softirq. */
	if (!began || !*began || !napi->dev)
		return 0;
	now = bpf_ktime_get_ns();
	cost = now - *began;
	*began = now;
	key.ifindex = napi->dev->ifindex;
	key.netns = napi->dev->nd_net.net->ns.inum;
	key.billed = task->nsproxy->net_ns->ns.inum;
	sum = bpf_map_lookup_elem(&charges, &key);
	if (sum)
		*sum += cost;
	else
		bpf_map_update_elem(&charges, &key, &cost, BPF_NOEXIST);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
