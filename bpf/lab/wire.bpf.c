// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The switch of a laboratory for loads of packets: it forwards in native XDP, from port to port, frames for a MAC
 * address of the laboratory. Everything else (broadcasts, unknown addresses) is left to the bridge. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "port.h"

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, LAB_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

SEC("xdp")
int lab_wire(struct xdp_md *ctx)
{
	__u32 place = lab_place((void *)(long)ctx->data, (void *)(long)ctx->data_end);

	/* The flag is the verdict on a frame for a port that is not there. */
	return bpf_redirect_map(&ports, place, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
