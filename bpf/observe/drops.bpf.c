// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Counts the packets that the kernel drops, by reason and place, and those that XDP programs lost.
 *
 * Every packet that the kernel drops passes the tracepoint skb:kfree_skb with a reason (enum skb_drop_reason; since
 * Linux 5.17). Packets that were consumed pass another one, and are not seen here. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <stdbool.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../lib/kernel.h"

/* No header was found yet (skb_reset_network_header was not called). */
#define NO_HEADER 0xffff

/* drop_flow has the addresses, ports and protocol of a packet, as far as its headers could be read. */
struct drop_flow {
	/* In network byte order; an IPv4 address is in the first word. */
	__u32 source[4];
	__u32 destination[4];
	/* In host byte order; 0 without ports. */
	__u16 source_port;
	__u16 destination_port;
	/* IPPROTO_*, and 4 or 6; version 0 if the packet could not be read. */
	__u8 protocol;
	__u8 version;
	__u16 pad;
};

/* drop_key names the reason, place and owner of drops. */
struct drop_key {
	/* The address in the kernel function that dropped the packet. */
	__u64 location;
	/* enum skb_drop_reason of the running kernel, or drops_xdp. */
	__u32 reason;
	/* The network namespace's inode number; 0 if the packet belonged to none
	 * any more. */
	__u32 netns;
	/* The device in it; 0 if none. */
	__u32 ifindex;
	/* ETH_P_*, in host byte order. */
	__u16 ethertype;
	/* enum drop_source. */
	__u16 from;
};

/* drop_source is the tracepoint that reported a drop. */
enum drop_source {
	DROP_SKB,
	/* An XDP program ended in XDP_ABORTED or an unknown verdict, or XDP_TX failed. */
	DROP_XDP_EXCEPTION,
	/* A redirect was refused; reason is the error number. */
	DROP_XDP_REDIRECT,
	/* The device that a redirect led to did not take frames. */
	DROP_XDP_TRANSMIT,
	DROP_SOURCES,
};

struct drop_value {
	__u64 packets;
	__u64 bytes;
	/* The flow of one of the packets. */
	struct drop_flow example;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 2048);
	__type(key, struct drop_key);
	__type(value, struct drop_value);
} dropped SEC(".maps");

/* Packets for which there was no more room in dropped. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} uncounted SEC(".maps");

/* Whether kfree_skb names the receiving socket (Linux 6.11). */
const volatile bool names_socket = false;

/* For bpf2go: the name of the enum in Go. */
enum drop_source drop_sources __attribute__((unused));

static __always_inline void count_uncounted(void)
{
	__u32 zero = 0;
	__u64 *sum = bpf_map_lookup_elem(&uncounted, &zero);

	if (sum)
		*sum += 1;
}

/* count_drop returns where an example may be written, once per key. */
static __always_inline struct drop_value *count_drop(struct drop_key *key, __u64 packets, __u64 bytes)
{
	static const struct drop_value none;
	struct drop_value *value = bpf_map_lookup_elem(&dropped, key);

	if (!value) {
		bpf_map_update_elem(&dropped, key, &none, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&dropped, key);
	}
	if (!value) {
		count_uncounted();
		return 0;
	}
	value->packets += packets;
	value->bytes += bytes;
	return value;
}

static __always_inline void read_ports(struct drop_flow *flow, const unsigned char *at)
{
	__be16 ports[2] = {};

	if (flow->protocol != IPPROTO_TCP && flow->protocol != IPPROTO_UDP)
		return;
	if (bpf_probe_read_kernel(ports, sizeof(ports), at))
		return;
	flow->source_port = bpf_ntohs(ports[0]);
	flow->destination_port = bpf_ntohs(ports[1]);
}

static __always_inline void read_ipv4(struct drop_flow *flow, const unsigned char *at)
{
	__u8 header[20];

	if (bpf_probe_read_kernel(header, sizeof(header), at) || header[0] >> 4 != 4)
		return;
	flow->version = 4;
	flow->protocol = header[9];
	__builtin_memcpy(flow->source, header + 12, 4);
	__builtin_memcpy(flow->destination, header + 16, 4);
	read_ports(flow, at + (header[0] & 15) * 4);
}

static __always_inline void read_ipv6(struct drop_flow *flow, const unsigned char *at)
{
	__u8 header[40];

	if (bpf_probe_read_kernel(header, sizeof(header), at) || header[0] >> 4 != 6)
		return;
	flow->version = 6;
	flow->protocol = header[6];
	__builtin_memcpy(flow->source, header + 8, 16);
	__builtin_memcpy(flow->destination, header + 24, 16);
	read_ports(flow, at + sizeof(header));
}

static __always_inline void read_example(struct drop_flow *flow, struct sk_buff *skb, __u16 ethertype)
{
	__u16 offset = BPF_CORE_READ(skb, network_header);
	const unsigned char *at = BPF_CORE_READ(skb, head) + offset;

	if (offset == NO_HEADER)
		return;
	if (ethertype == ETH_P_IP)
		read_ipv4(flow, at);
	else if (ethertype == ETH_P_IPV6)
		read_ipv6(flow, at);
}

static __always_inline __u32 netns_of_device(struct net_device *dev)
{
	return BPF_CORE_READ(dev, nd_net.net, ns.inum);
}

SEC("tp_btf/kfree_skb")
int kfree_skb(__u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct net_device *dev = BPF_CORE_READ(skb, dev);
	struct sock *sk = BPF_CORE_READ(skb, sk);
	struct drop_key key = {.location = ctx[1], .reason = ctx[2], .from = DROP_SKB};
	struct drop_value *value;

	key.ethertype = bpf_ntohs(BPF_CORE_READ(skb, protocol));
	if (names_socket && !sk)
		sk = (void *)ctx[3];
	/* The socket first: the device field has other uses while a packet is in a socket's queue. */
	if (sk) {
		key.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	} else if (dev) {
		key.netns = netns_of_device(dev);
		key.ifindex = BPF_CORE_READ(dev, ifindex);
	}
	value = count_drop(&key, 1, BPF_CORE_READ(skb, len));
	if (value && !value->example.version)
		read_example(&value->example, skb, key.ethertype);
	return 0;
}

static __always_inline void count_xdp(struct net_device *dev, enum drop_source from, __u32 reason, __u64 packets)
{
	struct drop_key key = {.from = from, .reason = reason};

	key.netns = netns_of_device(dev);
	key.ifindex = BPF_CORE_READ(dev, ifindex);
	count_drop(&key, packets, 0);
}

SEC("tp_btf/xdp_exception")
int xdp_exception(__u64 *ctx)
{
	count_xdp((void *)ctx[0], DROP_XDP_EXCEPTION, ctx[2], 1);
	return 0;
}

SEC("tp_btf/xdp_redirect_err")
int xdp_redirect_err(__u64 *ctx)
{
	count_xdp((void *)ctx[0], DROP_XDP_REDIRECT, -(int)ctx[3], 1);
	return 0;
}

SEC("tp_btf/xdp_devmap_xmit")
int xdp_devmap_xmit(__u64 *ctx)
{
	int drops = ctx[3];

	if (drops > 0)
		count_xdp((void *)ctx[1], DROP_XDP_TRANSMIT, -(int)ctx[4], drops);
	return 0;
}

/* symbol_question is an address, and the name that symbol() finds for it: the kernel knows the names of its functions
 * even if it hides their addresses in /proc/kallsyms. */
struct symbol_question {
	__u64 address;
	char name[64];
};
struct symbol_question question;

SEC("syscall")
int symbol(void *ctx __attribute__((unused)))
{
	BPF_SNPRINTF(question.name, sizeof(question.name), "%ps", question.address);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
