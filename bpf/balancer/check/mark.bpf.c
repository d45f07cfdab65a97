// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Writes the mark of a health check's socket into the packet, because the mark is cleared when the packet leaves the
 * network namespace of the sockets. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

SEC("tc")
int jeoul_mark(struct __sk_buff *ctx)
{
	__u32 mark = ctx->mark;

	if (bpf_skb_store_bytes(ctx, CHECK_MARK_AT, &mark, sizeof(mark), 0))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
