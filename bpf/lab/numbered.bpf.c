// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The receiver of a stream of numbered datagrams, for the laboratory: at the ingress of
 * each server's device it sets a bit for each number that comes, and drops the packet, so
 * that no socket's buffer has a part in what is counted.
 *
 * Number and mark are the last bytes of a packet, where they are found whatever a balancer
 * has put before them. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

/* Bytes of the headers of the shortest packet that can have a number: Ethernet, IPv4, UDP. */
#define HEADERS 42

/* What a datagram ends with, in the machine's byte order. */
struct tail {
	__u64 number;
	__u64 mark;
};

/* The mark of this stream: by chance. */
volatile const __u64 mark;

/* Datagrams whose number had come before, and packets that are several datagrams yet, for no
 * device on the way has cut them. */
__u64 twice, uncut;

/* A bit for each number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} came SEC(".maps");

SEC("tc")
int numbered_receive(struct __sk_buff *skb)
{
	struct tail tail;
	__u64 *word, bit;
	__u32 place;

	if (skb->len < HEADERS + sizeof(tail) || bpf_skb_load_bytes(skb, skb->len - sizeof(tail), &tail, sizeof(tail)) ||
	    tail.mark != mark)
		return TC_ACT_UNSPEC;
	if (skb->gso_size)
		__sync_fetch_and_add(&uncut, 1);
	place = tail.number / 64;
	bit = 1ULL << tail.number % 64;
	word = bpf_map_lookup_elem(&came, &place);
	if (word && __sync_fetch_and_or(word, bit) & bit)
		__sync_fetch_and_add(&twice, 1);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
