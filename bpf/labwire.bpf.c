// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The switch of a laboratory for loads of packets: it forwards in native XDP, from
 * port to port, what is for a MAC address of the laboratory. Everything else
 * (broadcasts, strangers) is left to the bridge.
 *
 * It must cost less than whatever is weighed. So its table has no hash: the
 * laboratory's addresses are numbered, and an address is the place of its port. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

/* Places for ports: five roles with room for 256 hosts each. */
#define PORTS 1280

/* What the MAC addresses of all hosts have in common, as the first six bytes of a
 * word lie in memory: which bits, and their values. The others are the role, in the
 * fourth byte, and the number, in the sixth. */
volatile const __u64 common_bits, common_values;

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, PORTS);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

SEC("xdp")
int lab_wire(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	__u64 mac;

	/* A word of the frame; of its last two bytes nothing is used. */
	if (data + sizeof(mac) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	mac = *(__u64 *)data;
	if ((mac & common_bits) != common_values)
		return XDP_PASS;
	/* The flag is what becomes of a frame for a port that is not there. */
	return bpf_redirect_map(&ports, (mac >> 24 & 0xff) << 8 | (mac >> 40 & 0xff), XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
