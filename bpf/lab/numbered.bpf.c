// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Counts a stream of numbered datagrams, for the laboratory: at the ingress of each server's device a bit is set for
 * each number that arrives, and the packet is dropped, so that no socket's buffer affects the count. At the switch's
 * port to the balancer two more programs record which numbers went to it and which it sent on, so that a loss has a
 * place.
 *
 * Number and mark are the last bytes of a packet, where they are found whatever headers a balancer has added. */
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

/* Datagrams whose number was received before, and packets that are still several datagrams (GSO), which no device has
 * segmented. */
__u64 duplicates, unsegmented;

/* A bit for each number. */
struct numbers {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
};

/* The numbers that a server has received, those that went to the balancer, and those that it has forwarded. */
struct numbers received SEC(".maps");
struct numbers entered SEC(".maps");
struct numbers returned SEC(".maps");

/* Whether a packet is of this stream; reads its tail. */
static __always_inline bool numbered(struct __sk_buff *skb, struct tail *tail)
{
	return skb->len >= HEADERS + sizeof(*tail) &&
	       !bpf_skb_load_bytes(skb, skb->len - sizeof(*tail), tail, sizeof(*tail)) && tail->mark == mark;
}

/* Sets the bit of a number, and reports whether it was set. */
static __always_inline bool set_bit(void *numbers, __u64 number)
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
		__sync_fetch_and_add(&unsegmented, 1);
	if (set_bit(&received, tail.number))
		__sync_fetch_and_add(&duplicates, 1);
	return TC_ACT_SHOT;
}

SEC("tc")
int numbered_enter(struct __sk_buff *skb)
{
	struct tail tail;

	if (numbered(skb, &tail))
		set_bit(&entered, tail.number);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int numbered_return(struct __sk_buff *skb)
{
	struct tail tail;

	if (numbered(skb, &tail))
		set_bit(&returned, tail.number);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
