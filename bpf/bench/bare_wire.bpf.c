// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The minimal program in place of a balancer, in XDP: packets for the service get the MAC address of a server, and go
 * out again by XDP_TX. The rate that a rig reaches with it is the rig's limit for balancers. */
#include "bare.h"

SEC("xdp")
int wire_bare(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;

	return set_server_mac(data, (void *)(long)ctx->data_end) ? XDP_TX : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
