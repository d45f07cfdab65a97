// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A flood of packets that open connections, for the laboratory: the sender, and the taps that count (and drop) its
 * packets along their path. None of them leaves the namespaces of a laboratory: the sender redirects to one device by
 * its index, and answers end in a tap.
 *
 * The sender is run by BPF_PROG_TEST_RUN with live frames. Frame n of a flood is a function of its seed and n, so that
 * its receiver can check it. Recycled frames still have their old content: the sender writes every byte again. */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "../lib/checksum.h"

/* Bytes of a frame: headers, and padding to a multiple of 8, at least Ethernet's
 * 60. */
#define IPV4_FRAME 64
#define IPV6_FRAME 80
/* More devices than a laboratory has servers. */
#define MAX_TARGETS 128

/* Offsets in a frame (IPv4 without options, IPv6 without extensions) and in a segment or datagram. */
#define IPV4_CHECK (ETH_HLEN + 10)
#define IPV4_SOURCE (ETH_HLEN + 12)
#define IPV4_L4 (ETH_HLEN + 20)
#define IPV6_SOURCE (ETH_HLEN + 8)
#define IPV6_L4 (ETH_HLEN + 40)
#define TCP_SEQUENCE 4
#define TCP_ACKNOWLEDGED 8
#define TCP_FLAGS 13
#define TCP_WINDOW 14
#define TCP_CHECK 16
#define UDP_CHECK 6
#define UDP_PAYLOAD 8

#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* MARK is the window of every TCP segment of a flood, and the payload of every datagram (in network byte order): it
 * identifies packets that a balancer has forwarded even where both addresses were rewritten. No other program in a
 * laboratory uses it. */
#define MARK 0x4a65

struct settings {
	/* The constant part of a frame, and the sums (RFC 1071) of the constant fields of the IPv4 header, and of the
	 * segment with its pseudo header. */
	__u64 frame[IPV6_FRAME / 8];
	__u32 sum_ip, sum_l4;
	__u32 ipv6, udp;
	/* Of two frames the second is the ACK that would follow the SYN. */
	__u32 pairs;
	/* The device, in the sender's namespace. */
	__u32 ifindex;
	/* MAC addresses to send to, as the first six bytes of a word; a flow has
	 * one of them. */
	__u32 targets;
	/* Which frames the taps drop: all at the port, or those that leave the balancer. */
	__u32 drop_at_port, drop_at_exit;
	/* Bytes of a prefix of sources: the first 32 bits of an IPv4 address, or the
	 * two halves of an IPv6 one, and which of their bits differ (of IPv6, in the
	 * second half only); all as they lie in memory. */
	__u64 prefix[2], wild;
	__u64 seed;
	/* Frames of the flood in all; then the program sends no more, however often it is run. */
	__u64 limit;
	/* Frames a second; 0: as many as can be. */
	__u64 rate;
	__u64 target[MAX_TARGETS];
};

volatile const struct settings settings;

/* next is the number of the next frame, and so of those sent. One CPU sends. */
__u64 next;

/* began is when the flood was first run, in nanoseconds; stopped says that it is to
 * send no more. */
__u64 began;
__u32 stopped;

/* due reports whether it is time for frame n. */
static __always_inline bool due(__u64 n)
{
	__u64 now;

	if (!settings.rate)
		return true;
	now = bpf_ktime_get_ns();
	if (!began)
		began = now;
	/* In microseconds: the product fits for years. */
	return n <= (now - began) / 1000 * settings.rate / 1000000;
}

/* The ifindex of the switch's port behind each MAC address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u64);
	__type(value, __u32);
} ports SEC(".maps");

/* counted is a kind of packet, by its place and its flags. */
enum counted {
	/* The attacker's packets, at its port of the switch. */
	COUNTED_OFFERED,
	/* The balancer's packets: sent on (SYNs and datagrams; ACKs), or answers. */
	COUNTED_FORWARDED,
	COUNTED_FORWARDED_ACK,
	COUNTED_ANSWERED_SYNACK,
	COUNTED_ANSWERED_RST,
	COUNTED_ANSWERED_OTHER,
	/* Answers that come back to the attacker. */
	COUNTED_RETURNED_SYNACK,
	COUNTED_RETURNED_RST,
	COUNTED_RETURNED_OTHER,
	COUNTED_KINDS
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTED_KINDS);
	__type(key, enum counted);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void count(enum counted what)
{
	__u64 *sum = bpf_map_lookup_elem(&counts, &what);

	if (sum)
		*sum += 1;
}

/* mix is the finalizer of SplitMix64. */
static __always_inline __u64 mix(__u64 x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

#define STORE(type, at, value) (*(type *)(data + (at)) = (value))

/* write_segment writes the transport header of a flow, and returns the sum of its words. `random` has its port in the
 * upper 16 bits. */
static __always_inline __u64 write_segment(void *data, __u32 at, __u64 random, bool ack)
{
	__be16 port = bpf_htons(1024 + (__u16)((random >> 48) * 64512 >> 16));
	__u64 numbers = mix(random), sum = port;
	__be32 sequence = (__u32)(numbers >> 32), acknowledged = 0;
	__be16 flags = bpf_htons(5 << 12 | TCP_SYN);

	STORE(__be16, at, port);
	if (settings.udp)
		return sum;
	if (ack) {
		sequence = bpf_htonl(bpf_ntohl(sequence) + 1);
		acknowledged = (__u32)numbers;
		flags = bpf_htons(5 << 12 | TCP_ACK);
	}
	STORE(__be32, at + TCP_SEQUENCE, sequence);
	STORE(__be32, at + TCP_ACKNOWLEDGED, acknowledged);
	STORE(__be16, at + TCP_FLAGS - 1, flags);
	return sum + sequence + acknowledged + flags;
}

static __always_inline void write_check(void *data, __u32 at, __u64 sum)
{
	__u16 check = ~checksum_fold(sum + settings.sum_l4);

	if (settings.udp)
		STORE(__u16, at + UDP_CHECK, check ? check : 0xffff);
	else
		STORE(__u16, at + TCP_CHECK, check);
}

SEC("xdp")
int flood_send(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 n = next, random, sum, address;
	bool ack = settings.pairs && (n & 1);

	if (n >= settings.limit || *(volatile __u32 *)&stopped || !due(n))
		return XDP_DROP;
	next = n + 1;
	random = mix(settings.seed + ((settings.pairs ? n >> 1 : n) + 1) * 0x9e3779b97f4a7c15ULL);
	if (data + IPV4_FRAME > end)
		return XDP_ABORTED;
#pragma unroll
	for (int i = 0; i < IPV4_FRAME / 8; i++)
		STORE(__u64, 8 * i, settings.frame[i]);
	address = settings.target[settings.targets > 1 ? (__u32)random % settings.targets % MAX_TARGETS : 0];
	STORE(__u32, 0, (__u32)address);
	STORE(__u16, 4, (__u16)(address >> 32));
	if (settings.ipv6) {
		if (data + IPV6_FRAME > end)
			return XDP_ABORTED;
		STORE(__u64, IPV4_FRAME, settings.frame[IPV4_FRAME / 8]);
		STORE(__u64, IPV4_FRAME + 8, settings.frame[IPV4_FRAME / 8 + 1]);
		address = settings.prefix[1] | (mix(~random) & settings.wild);
		STORE(__u64, IPV6_SOURCE + 8, address);
		sum = (address >> 32) + (__u32)address + write_segment(data, IPV6_L4, random, ack);
		write_check(data, IPV6_L4, sum);
	} else {
		address = settings.prefix[0] | (random & settings.wild);
		STORE(__u32, IPV4_SOURCE, address);
		STORE(__u16, IPV4_CHECK, ~checksum_fold(settings.sum_ip + address));
		write_check(data, IPV4_L4, address + write_segment(data, IPV4_L4, random, ack));
	}
	return bpf_redirect(settings.ifindex, 0);
}

/* seen has the properties of a packet that a tap counts by. */
struct seen {
	/* It is of the flood: from the attacker, or marked and so sent on. */
	bool from, marked;
	/* It is for a source of the flood: an answer. */
	bool answer;
	/* TCP's; 0 for UDP. */
	__u8 flags;
};

/* classify parses a packet; all fields are false for one that is no packet of a flood. */
static __always_inline struct seen classify(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l4 = settings.ipv6 ? IPV6_L4 : IPV4_L4;
	__be16 type = bpf_htons(settings.ipv6 ? ETH_P_IPV6 : ETH_P_IP);
	__u8 protocol;
	struct seen seen = {};
	__be16 mark;

	/* A segment's header, or a datagram's with the mark, is within the shorter. */
	if (data + l4 + 18 > end || *(__be16 *)(data + 2 * ETH_ALEN) != type)
		return seen;
	if (settings.ipv6) {
		__u64 *source = data + IPV6_SOURCE, *destination = source + 2;

		seen.from = source[0] == settings.prefix[0] && (source[1] & ~settings.wild) == settings.prefix[1];
		seen.answer = destination[0] == settings.prefix[0] && (destination[1] & ~settings.wild) == settings.prefix[1];
		protocol = *(__u8 *)(data + ETH_HLEN + 6);
	} else {
		__u32 *source = data + IPV4_SOURCE, *destination = source + 1, fixed = ~(__u32)settings.wild;

		seen.from = (*source & fixed) == (__u32)settings.prefix[0];
		seen.answer = (*destination & fixed) == (__u32)settings.prefix[0];
		protocol = *(__u8 *)(data + ETH_HLEN + 9);
	}
	if (protocol != (settings.udp ? IPPROTO_UDP : IPPROTO_TCP))
		return seen;
	mark = *(__be16 *)(data + l4 + (settings.udp ? UDP_PAYLOAD : TCP_WINDOW));
	seen.marked = mark == bpf_htons(MARK);
	if (!settings.udp)
		seen.flags = *(__u8 *)(data + l4 + TCP_FLAGS);
	return seen;
}

/* count_answer counts a reply at the first of three counters. */
static __always_inline void count_answer(struct seen seen, enum counted first)
{
	if ((seen.flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK))
		count(first);
	else if (seen.flags & TCP_RST)
		count(first + 1);
	else
		count(first + 2);
}

/* flood_port is at the switch's port to the attacker, and sends the flood on to the
 * port that it is for, as a switch does. */
SEC("xdp")
int flood_port(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	__u64 mac = 0;
	__u32 *port;

	if (!classify(ctx).from)
		return XDP_PASS;
	count(COUNTED_OFFERED);
	if (settings.drop_at_port || data + ETH_ALEN > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__builtin_memcpy(&mac, data, ETH_ALEN);
	port = bpf_map_lookup_elem(&ports, &mac);
	return port ? bpf_redirect(*port, 0) : XDP_DROP;
}

/* flood_exit is at the switch's port to the balancer, and sees the packets that leave the balancer. */
SEC("xdp")
int flood_exit(struct xdp_md *ctx)
{
	struct seen seen = classify(ctx);

	if (seen.answer)
		count_answer(seen, COUNTED_ANSWERED_SYNACK);
	else if (seen.marked)
		count(seen.flags & TCP_ACK ? COUNTED_FORWARDED_ACK : COUNTED_FORWARDED);
	else
		return XDP_PASS;
	return settings.drop_at_exit ? XDP_DROP : XDP_PASS;
}

/* flood_sink is at the attacker's own device, where answers end. */
SEC("xdp")
int flood_sink(struct xdp_md *ctx)
{
	struct seen seen = classify(ctx);

	if (!seen.answer)
		return XDP_PASS;
	count_answer(seen, COUNTED_RETURNED_SYNACK);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
