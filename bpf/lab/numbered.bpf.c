// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Counts a stream of numbered datagrams, for the laboratory: at the ingress of each server's device a bit is set for
 * each number that arrives, and the packet is dropped, so that no socket's buffer affects the count. At the switch's
 * port to the balancer two more programs record which numbers went to it and which it sent on, so that a loss has a
 * place.
 *
 * Number and mark are the last bytes of a packet, where they are found whatever a balancer
 * has put before them. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

/* Bytes of the headers of the shortest packet that can have a number: Ethernet, IPv4, UDP. */
#define HEADERS 42

/* tail is the last 16 bytes of a datagram, in the machine's byte order. */
struct tail {
	__u64 number;
	__u64 mark;
};

/* The mark of this stream: by chance. */
volatile const __u64 mark;

/* Datagrams whose number had come before, and packets that are still several datagrams (GSO), for no device on the way
 * has segmented them. */
__u64 twice, uncut;

/* A bit for each number. */
struct numbers {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
};

/* The numbers that came to a server, those that went to the balancer, and those that it sent on. */
struct numbers came SEC(".maps");
struct numbers entered SEC(".maps");
struct numbers returned SEC(".maps");

/* Whether a packet is of this stream; reads its tail. */
static __always_inline bool numbered(struct __sk_buff *skb, struct tail *tail)
{
	return skb->len >= HEADERS + sizeof(*tail) &&
	       !bpf_skb_load_bytes(skb, skb->len - sizeof(*tail), tail, sizeof(*tail)) && tail->mark == mark;
}

/* Sets the bit of a number, and says whether it was set. */
static __always_inline bool note(void *numbers, __u64 number)
{
	__u32 place = number / 64;
	__u64 bit = 1ULL << number % 64;
	__u64 *word = bpf_map_lookup_elem(numbers, &place);

	return word && __sync_fetch_and_or(word, bit) & bit;
}

SEC("tc")
int numbered_receive(struct __sk_buff *skb)
{
	struct tail tail;

	if (!numbered(skb, &tail))
		return TC_ACT_UNSPEC;
	if (skb->gso_size)
		__sync_fetch_and_add(&uncut, 1);
	if (note(&came, tail.number))
		__sync_fetch_and_add(&twice, 1);
	return TC_ACT_SHOT;
}

SEC("tc")
int numbered_enter(struct __sk_buff *skb)
{
	struct tail tail;

	if (numbered(skb, &tail))
		note(&entered, tail.number);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int numbered_return(struct __sk_buff *skb)
{
	struct tail tail;

	if (numbered(skb, &tail))
		note(&returned, tail.number);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
