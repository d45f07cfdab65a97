/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Each packet is counted once: by its backend if it was forwarded, by its outcome if not. Per CPU: nothing is shared or
 * atomic. */
#pragma once

#include "decision.h"
#include "maps.h"

static __always_inline bool is_sent(enum outcome outcome)
{
	return outcome == OUTCOME_FORWARDED || outcome == OUTCOME_RETURNED;
}

static __always_inline void count_outcome(enum outcome outcome, __u64 packets)
{
	__u64 *count;

	if (is_sent(outcome) || dry_run())
		return;
	count = bpf_map_lookup_elem(&outcomes, &outcome);
	if (count)
		*count += packets;
}

/* count_of returns this CPU's counter of the backend with an index. */
static __always_inline struct backend_count *count_of(const __u32 *index)
{
	return dry_run() ? NULL : bpf_map_lookup_elem(&backend_counts, index);
}

/* count_sent counts a packet to the backend with an index; opens says that it opens a connection. */
static __always_inline void count_sent(const struct packet *packet, const __u32 *index, bool opens,
				       __u64 packets)
{
	struct backend_count *count = count_of(index);

	if (!count)
		return;
	count->packets += packets;
	count->bytes += packet->length;
	if (opens)
		count->connections++;
}

static __always_inline void count_backend(const struct packet *packet,
					  const struct decision *decision, __u64 packets)
{
	count_sent(packet, &decision->backend->index, decision->opens, packets);
}

/* count_reply counts a packet of the backend with an index, to its client. */
static __always_inline void count_reply(const struct packet *packet, const __u32 *index,
					__u64 packets)
{
	struct backend_count *count = count_of(index);

	if (!count)
		return;
	count->returned_packets += packets;
	count->returned_bytes += packet->length;
}

/* accepts_syn reports whether a reply is a SYN-ACK. */
static __always_inline bool accepts_syn(const struct packet *reply)
{
	return (reply->tcp_flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK);
}

/* refuses_syn reports whether a reply is a RST in answer to a SYN: unlike a RST of a connection it has the sequence
 * number 0, because there is none (RFC 9293 section 3.10.7.1). */
static __always_inline bool refuses_syn(const struct packet *reply, __be32 sequence)
{
	return (reply->tcp_flags & (TCP_RST | TCP_ACK)) == (TCP_RST | TCP_ACK) && !sequence;
}

/* count_answer counts a backend's answer to a SYN. */
static __always_inline void count_answer(const struct packet *reply, __be32 sequence,
					 const __u32 *index)
{
	struct backend_count *count = count_of(index);

	if (!count)
		return;
	if (accepts_syn(reply))
		count->answered++;
	else if (refuses_syn(reply, sequence))
		count->refused++;
}

/* count_unreachable counts an ICMP error of a backend's own. */
static __always_inline void count_unreachable(const __u32 *index)
{
	struct backend_count *count = count_of(index);

	if (count)
		count->unreachable++;
}

static __always_inline void count_returned(const struct packet *packet,
					   const struct decision *decision, __u64 packets)
{
	count_reply(packet, &decision->backend->index, packets);
}
