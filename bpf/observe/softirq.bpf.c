// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Charges the CPU time of the kernel's packet processing to devices.
 *
 * Received packets are processed in the NET_RX softirq, which interrupts the process that runs on the core: a process
 * on one host of a laboratory is charged for the packets of another. Within a softirq, devices are polled one after the
 * other; the time between the end of one poll and the end of the next is the cost of the second. The core's backlog
 * queue, which has a veth's packets if they need no GRO, is polled as well, but has the packets of all devices: there
 * the time from one packet to the next is the cost of the first.
 *
 * The cost of these programs is part of their measurement, at every packet of every host, so each has as few steps as
 * possible. */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#include "../lib/kernel.h"

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
	char comm[16];
} KERNEL;

/* The clocks of tasks leave softirqs out, but for those that ksoftirqd runs. */
const volatile bool clock_leaves_out = false;

/* charge_key is an account of CPU time: the packet processing of a device, or, with ifindex 0, all that interrupted
 * processes of a namespace. */
struct charge_key {
	__u32 ifindex;
	/* The inode number of the network namespace, as stat(2) shows it. */
	__u32 netns;
};

/* charge is a sum of nanoseconds on one CPU. */
struct charge {
	struct charge_key key;
	__u64 ns;
};

/* A sum is in the array slot of its key's hash, which takes no helper call. On a collision the sum is in `others`. */
#define CHARGE_SLOTS 1024

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CHARGE_SLOTS);
	__type(key, __u32);
	__type(value, struct charge);
} charges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct charge_key);
	__type(value, __u64);
} others SEC(".maps");

/* round is the running softirq of a CPU. */
struct round {
	/* The time up to which everything is charged, in nanoseconds; 0 outside of a softirq. */
	__u64 since;
	/* The time charged in it, in nanoseconds. */
	__u64 charged;
	/* The account of the packet that is processed, and the address of its device; 0 before the first of a poll. */
	struct charge_key key;
	__u64 device;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct round);
} rounds SEC(".maps");

static __always_inline struct round *round_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&rounds, &zero);
}

static __always_inline struct charge_key key_of(struct net_device *device)
{
	struct charge_key key = {
		.ifindex = device->ifindex,
		.netns = device->nd_net.net->ns.inum,
	};

	return key;
}

static __noinline void add_to_others(const struct charge_key *key, __u64 ns)
{
	__u64 *sum = bpf_map_lookup_elem(&others, key);

	if (!sum) {
		if (!bpf_map_update_elem(&others, key, &ns, BPF_NOEXIST))
			return;
		/* Another CPU has made the entry meanwhile. */
		sum = bpf_map_lookup_elem(&others, key);
	}
	if (sum)
		*sum += ns;
}

static __always_inline void add(struct charge_key key, __u64 ns)
{
	/* Both numbers are assigned consecutively. */
	__u32 place = (key.netns * 31 + key.ifindex) % CHARGE_SLOTS;
	struct charge *charge = bpf_map_lookup_elem(&charges, &place);

	if (!charge)
		return;
	if (!charge->ns)
		charge->key = key;
	if (charge->key.ifindex == key.ifindex && charge->key.netns == key.netns)
		charge->ns += ns;
	else
		add_to_others(&key, ns);
}

/* charge_elapsed charges the time since its last call. */
static __always_inline void charge_elapsed(struct round *round, struct charge_key key)
{
	__u64 now = bpf_ktime_get_ns();

	add(key, now - round->since);
	round->charged += now - round->since;
	round->since = now;
}

SEC("tp_btf/softirq_entry")
int softirq_entry(__u64 *ctx)
{
	struct round *round;

	if (ctx[0] != NET_RX)
		return 0;
	round = round_here();
	if (!round)
		return 0;
	round->charged = 0;
	round->device = 0;
	round->since = bpf_ktime_get_ns();
	return 0;
}

/* is_ksoftirqd reports whether a task is one of the kernel's threads "ksoftirqd/CPU". */
static __always_inline bool is_ksoftirqd(struct task_struct *task)
{
	static const char name[10] = "ksoftirqd/";

	for (int i = 0; i < sizeof(name); i++) {
		if (task->comm[i] != name[i])
			return false;
	}
	return true;
}

SEC("tp_btf/softirq_exit")
int softirq_exit(__u64 *ctx)
{
	struct task_struct *task;
	struct charge_key key = {};
	struct round *round;

	if (ctx[0] != NET_RX)
		return 0;
	round = round_here();
	if (!round)
		return 0;
	round->since = 0;
	if (!round->charged)
		return 0;
	task = bpf_get_current_task_btf();
	if (clock_leaves_out && !is_ksoftirqd(task))
		return 0;
	key.netns = task->nsproxy->net_ns->ns.inum;
	add(key, round->charged);
	return 0;
}

SEC("tp_btf/napi_poll")
int napi_poll(__u64 *ctx)
{
	struct napi_struct *napi = (void *)ctx[0];
	struct round *round = round_here();

	/* A threaded NAPI has a thread of its own, and no softirq. */
	if (!round || !round->since)
		return 0;
	if (napi->dev)
		charge_elapsed(round, key_of(napi->dev));
	else if (round->device)
		charge_elapsed(round, round->key);
	else
		/* The core's own queue: the kernel does not say whose packets were in it. */
		round->since = bpf_ktime_get_ns();
	round->device = 0;
	return 0;
}

/* Begins with each packet that the kernel takes from a queue. */
SEC("tp_btf/netif_receive_skb")
int receive(__u64 *ctx)
{
	struct sk_buff *packet = (void *)ctx[0];
	struct net_device *device = packet->dev;
	struct round *round = round_here();

	if (!round || !round->since || round->device == (__u64)device)
		return 0;
	/* The time before the first packet was spent on fetching it. */
	if (round->device)
		charge_elapsed(round, round->key);
	round->key = key_of(device);
	round->device = (__u64)device;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
