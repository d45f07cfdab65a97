/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types that the packet-level tester's programs share with the Go code that loads them. Times are of CLOCK_MONOTONIC;
 * numbers are in host byte order unless a type says otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/types.h>

/* Ports of each side. A server's index is in 6 bits of its sequence numbers. */
#define WIRE_PORTS 16
/* Bytes of payload in a segment or datagram: an Ethernet frame's, less IPv4 and TCP. */
#define WIRE_SEGMENT 1460
/* Bytes of a request, or of the front of a response, rounded up to words. */
#define WIRE_CONTENT 1464
#define WIRE_HEAD 256
/* Response sizes of a mix. */
#define WIRE_SIZES 256
/* A tick, for timeouts: 2^20 ns, about a millisecond. */
#define WIRE_TICK 20
/* Intervals have so many bits behind the nanosecond. */
#define WIRE_FRACTION 20
/* The window of a reset that says: this connection is of another server port. In a
 * reset the field means nothing (RFC 9293 section 3.10.7). */
#define WIRE_MARK_WRONG_BACKEND 0x6a77
/* The first eight bytes of a datagram of load udp. */
#define WIRE_MAGIC 0x4a656f756c776972ULL

/* wire_state is the state of a connection (query). Those from CLOSED on have ended, and their number may be used again.
 * FREE is 0: no connection yet. */
enum wire_state {
	WIRE_FREE,
	/* A SYN, or a query, waits for its answer. */
	WIRE_ASKED,
	WIRE_ESTABLISHED,
	/* A request waits for its response, or for the rest of it. */
	WIRE_REQUESTED,
	/* Our FIN waits for the other side's. */
	WIRE_CLOSING,
	/* The other side's FIN came, ours waits to be acknowledged. */
	WIRE_LAST_ACK,
	/* A held connection has answered. */
	WIRE_PROVEN,
	WIRE_CLOSED,
	WIRE_FAILED,
};

/* wire_connection is a client port's state of a connection. `word` is epoch << 16 | tries << 8 | state and changes in
 * one step: sender and ports may be on two CPUs. */
struct wire_connection {
	/* When the first SYN (later: the first request) was sent, in ns. */
	__u64 began;
	__u32 word;
	/* The next sequence number of the other side. */
	__u32 expects;
	/* Bytes of the response so far. */
	__u32 received;
	/* When to send again, in ticks. */
	__u32 resend;
	/* The client's first number of the connection that a server port has counted as
	 * accepted. */
	__u32 accepted;
	/* The last packet had a wrong checksum. */
	__u32 bad;
};

/* wire_client_port is a client port as others see it. */
struct wire_client_port {
	/* Its MAC address, the first six bytes of the word. */
	__u64 mac;
	/* The first of its addresses. */
	__u32 first;
	__u32 unused;
};

/* wire_settings is the arrangement: constant while programs are loaded. */
struct wire_settings {
	struct wire_client_port client[WIRE_PORTS];
	/* MAC addresses that clients send to. */
	__u64 next[WIRE_PORTS];
	/* The VIP of a code point; 0: none. */
	__be32 dscp[64];
	__u64 seed;
	__be32 vip;
	__be16 vip_port;
	/* The port of a server port's own address. */
	__be16 own_port;
	__u32 clients, servers, nexts;
	/* Addresses of each client port, the first source port and how many, and
	 * connections in the table. */
	__u32 addresses, first_port, ports, capacity;
	/* Answers go to the client port's MAC address. */
	__u32 direct;
	/* See ../lib/order.h. */
	__u32 weak;
};

/* wire_port is the port that a program is on; the sender has none. */
struct wire_port {
	__u64 mac;
	__be32 address;
	/* Among the clients or the servers. */
	__u32 index;
	/* Of `counts`. */
	__u32 row;
	__u32 unused;
};

enum wire_kind {
	WIRE_TCP,
	WIRE_UDP,
	WIRE_DNS,
};

/* wire_action is the operation that the follower applies to connections, one after the other. */
enum wire_action {
	WIRE_NOTHING,
	/* FIN to those that are established. */
	WIRE_FINISH,
	/* RST to those that are not closed. */
	WIRE_RESET,
	/* A request to those that are established. */
	WIRE_REQUEST,
};

/* wire_control has the settings by which user space drives the programs, which only read it. */
struct wire_control {
	/* Connections are begun in the order of their numbers up to `open_to`; number
	 * `first` at `start` (ns), the next each `interval` (ns << WIRE_FRACTION; 0: at
	 * once) later. */
	__u64 open_to, first, start, interval;
	/* The follower does `action` from follow_from to follow_to, again when `follow_id` changes, and stays `lag` behind
	 * the opener. Its pace is as the opener's. */
	__u64 follow_from, follow_to, follow_start, follow_interval, lag;
	/* The flood's frames likewise. */
	__u64 flood_to, flood_first, flood_start, flood_interval;
	enum wire_kind kind;
	enum wire_action action;
	__u32 follow_id;
	/* How many connections may wait for an answer at a time; 0: any number. With `count_sessions`, a session counts as
	 * one answer, else its handshake does. */
	__u32 outstanding, count_sessions;
	/* Bytes of the request and of the response, and of a frame of load udp. */
	__u32 request, response, frame;
	/* In ticks; and how often a packet is sent. */
	__u32 timeout, tries;
	/* Requests are sent with the handshake's ACK. */
	__u32 request_at_once;
	/* The connection stays after its response. */
	__u32 keep;
	/* Responses have the sizes of the mix. */
	__u32 mixed;
	/* Connections that wait now are given up. */
	__u32 give_up;
	__u32 stopped;
	/* Sources of the flood, the bits that differ, and the client port that it
	 * leaves by. */
	__be32 flood_source, flood_wild;
	__u32 flood_port;
	/* Bytes of a question in a query, with type and class; of the response's head. */
	__u32 question, head_length;
	__u8 content[WIRE_CONTENT] __attribute__((aligned(8)));
	__u8 head[WIRE_HEAD];
	__u32 sizes[WIRE_SIZES];
};

/* wire_progress is the progress of the sender; no other program writes it. */
struct wire_progress {
	/* Numbers of the next connection to begin, to follow and to retry, and of the next frame of a flood. */
	__u64 opened, followed, retried, flooded;
	/* Retries begin at connection `oldest`. The pass under way ends at pass_end, and pass_low is the first connection
	 * in it that still waits; the next pass begins at pass_at (ns). */
	__u64 oldest, pass_low, pass_end, pass_at;
	/* Frames, of all client ports. */
	__u64 sent;
	__u64 retransmitted, finished, reset, requested;
	/* Given up. */
	__u64 no_answer, checksum;
	/* The largest delay of a connection's begin, and when the first and the last was begun, in ns. */
	__u64 behind, began, ended;
	__u32 follow_id;
	/* How often the sender was run. */
	__u32 runs;
	/* The clock (ns), as it was read last. */
	__u64 now;
};

/* wire_shared has the counter of the client ports' progress, which the sender reads. */
struct wire_shared {
	/* Connections that have been answered or have failed; counted only while there is
	 * a bound. */
	__u64 answered;
};

/* wire_count is a counter of a port, in packets but where a comment has another unit. */
enum wire_count {
	WIRE_COUNT_RECEIVED,
	WIRE_COUNT_SENT,
	/* Of connections: handshakes completed (queries answered; at a server port:
	 * connections accepted, datagrams arrived), sessions completed, established ones
	 * that failed, failures. */
	WIRE_COUNT_ESTABLISHED,
	WIRE_COUNT_COMPLETED,
	WIRE_COUNT_BROKEN,
	WIRE_COUNT_FAILED_RESET,
	WIRE_COUNT_FAILED_WRONG_BACKEND,
	/* Unexpected packets. */
	WIRE_COUNT_LATE,
	WIRE_COUNT_DUPLICATE,
	WIRE_COUNT_UNKNOWN_PEER,
	WIRE_COUNT_CHECKSUM,
	WIRE_COUNT_MALFORMED,
	WIRE_COUNT_WRONG_BACKEND,
	WIRE_COUNT_INVALID_ACK,
	/* Packets of a flood that arrived. */
	WIRE_COUNT_FLOOD,
	/* At server ports. */
	WIRE_COUNT_SYN,
	WIRE_COUNT_REQUEST,
	WIRE_COUNT_FIN,
	WIRE_COUNT_RST,
	WIRE_COUNTS
};

struct wire_counts {
	__u64 count[WIRE_COUNTS];
};

/* A histogram's buckets are those of HdrHistogram (G. Tene): 2^6 in each power of two
 * of nanoseconds, so that a value is known to 1.6 %; up to 2^37 ns. */
#define WIRE_SUB 6
#define WIRE_BUCKETS (32 << WIRE_SUB)

struct wire_histogram {
	__u64 count, sum, min, max;
	__u64 bucket[WIRE_BUCKETS];
};

enum wire_latency {
	WIRE_LATENCY_SETUP,
	WIRE_LATENCY_RESPONSE,
	WIRE_LATENCIES
};
