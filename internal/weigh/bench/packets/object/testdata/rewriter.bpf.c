// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A small balancer by direct return, as anyone could bring one: packets for a VIP go to the MAC address of
 * its only backend, and are counted. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct vip {
	__be32 address;
	__be16 port;
	__u8 protocol;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct vip);
	__type(value, __u8[8]);
} vips SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[2]);
} stats SEC(".maps");

/* 0 forwards nothing. */
volatile const __u32 enabled = 0;

SEC("xdp")
int rewriter(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct tcphdr *tcp = (void *)(ip + 1);
	struct vip vip = {};
	__u64 *counts;
	__u32 zero = 0;
	__u8 *mac;

	if (!enabled || (void *)(tcp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5)
		return XDP_PASS;
	vip.address = ip->daddr;
	vip.port = tcp->dest;
	vip.protocol = ip->protocol;
	mac = bpf_map_lookup_elem(&vips, &vip);
	counts = bpf_map_lookup_elem(&stats, &zero);
	if (!mac || !counts)
		return XDP_PASS;
	__builtin_memcpy(eth->h_source, eth->h_dest, 6);
	__builtin_memcpy(eth->h_dest, mac, 6);
	counts[1]++;
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
