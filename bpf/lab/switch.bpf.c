// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The fast path of the laboratory's switch. A frame for the MAC address of a connected host is redirected to that port;
 * everything else (broadcasts, unknown addresses) is left to the bridge. The cost of a switch is no part of a result,
 * but it uses cores that the measured parts share, and twice as often where there is a balancer. */
#include "../lib/ctx_tc.h"
#include "port.h"

/* The ifindex of the port at each place; 0 where there is none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LAB_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

SEC("tc")
int lab_switch(ctx_t *ctx)
{
	__u32 place = lab_place(ctx_data(ctx), ctx_data_end(ctx));
	__u32 *port = bpf_map_lookup_elem(&ports, &place);

	return port && *port ? bpf_redirect(*port, 0) : CTX_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
