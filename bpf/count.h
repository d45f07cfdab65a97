/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Each packet ends in exactly one counter: that of its backend if it was sent
 * on, that of its outcome if not. Per CPU: nothing is shared or atomic. */
#pragma once

#include "maps.h"
#include "select.h"

static __always_inline void count_outcome(enum outcome outcome, __u64 packets)
{
	__u64 *count;

	if (outcome == OUTCOME_FORWARDED)
		return;
	count = bpf_map_lookup_elem(&outcomes, &outcome);
	if (count)
		*count += packets;
}

static __always_inline void count_backend(const struct packet *packet,
					  const struct choice *choice, __u64 packets)
{
	struct backend_count *count = bpf_map_lookup_elem(&backend_counts, &choice->backend->index);

	if (!count)
		return;
	count->packets += packets;
	count->bytes += packet->length;
	if (choice->opens)
		count->connections++;
}
