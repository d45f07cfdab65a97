// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The fast path of the laboratory's switch. A frame for a MAC address that is
 * plugged in goes straight to that port; everything else (broadcasts, strangers)
 * is left to the bridge. What a switch costs is no part of what is weighed, but
 * it takes cores that the weighed parts share, and twice as often where there is
 * a balancer. */
#include "ctx_tc.h"

#include <linux/if_ether.h>

/* The ifindex of the port behind each MAC address, which is the key's first
 * six bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u64);
	__type(value, __u32);
} ports SEC(".maps");

SEC("tc")
int lab_switch(ctx_t *ctx)
{
	void *data = ctx_data(ctx);
	__u64 mac = 0;
	__u32 *port;

	if (data + ETH_HLEN > ctx_data_end(ctx))
		return CTX_PASS;
	__builtin_memcpy(&mac, data, ETH_ALEN);
	port = bpf_map_lookup_elem(&ports, &mac);
	return port ? bpf_redirect(*port, 0) : CTX_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
