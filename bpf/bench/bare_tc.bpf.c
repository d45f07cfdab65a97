// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The minimal program in place of a balancer, in TC: packets for the service get the MAC address of a server, and are
 * redirected out of the device they came by. */
#include "bare.h"

#include <linux/pkt_cls.h>

SEC("tc")
int bare_tc(struct __sk_buff *ctx)
{
	void *data = (void *)(long)ctx->data;

	return set_server_mac(data, (void *)(long)ctx->data_end) ? bpf_redirect(ctx->ifindex, 0) : TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
