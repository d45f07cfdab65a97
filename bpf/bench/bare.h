/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The minimal program in a balancer's place, for either hook: packets for the service get the MAC address of a server.
 * It has a fixed configuration, no health, no state, no counters, and serves only the simplest packets. */
#pragma once

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

/* A power of two beyond a laboratory's servers of 99. */
#define MAX_SERVERS 128

/* The service; network byte order. */
volatile const __be32 vip;
volatile const __be16 port;
/* MAC addresses, as the first six bytes of a word lie in memory: ours, and the
 * servers'. */
volatile const __u64 own;
volatile const __u64 servers[MAX_SERVERS];
volatile const __u32 server_count = 1;

struct ports {
	__be16 source, destination;
};

static __always_inline void write_mac(void *at, __u64 mac)
{
	*(__u32 *)at = (__u32)mac;
	*(__u16 *)(at + 4) = (__u16)(mac >> 32);
}

/* set_server_mac rewrites the MAC address of a packet for the service to a server's, the same for all packets of a
 * flow. One client's flows spread evenly over all servers, whether its ports follow one another or are even (those that
 * Linux prefers for connect()): by the plain port, half the servers would then get nothing. It returns false for other
 * packets. */
static __always_inline bool set_server_mac(void *data, void *data_end)
{
	struct iphdr *ip = data + ETH_HLEN;
	struct ports *l4 = (void *)(ip + 1);
	__u32 flow;

	if ((void *)(l4 + 1) > data_end)
		return false;
	if (*(__be16 *)(data + 2 * ETH_ALEN) != bpf_htons(ETH_P_IP) || ip->daddr != vip || ip->ihl != 5 ||
	    (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP) || l4->destination != port)
		return false;
	flow = bpf_ntohl(ip->saddr) + ((bpf_ntohs(l4->source) + 1U) >> 1);
	write_mac(data, servers[flow % server_count % MAX_SERVERS]);
	write_mac(data + ETH_ALEN, own);
	return true;
}
