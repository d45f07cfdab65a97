// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The packet-level tester: client ports and server ports that speak TCP, UDP and DNS without sockets. The sender is run
 * by BPF_PROG_TEST_RUN with live frames; the other two are on the ports' interfaces. Other packets they leave to the
 * kernel. */
#include "send.h"
#include "server.h"

/* wire_arp answers ARP for the clients' addresses (RFC 826), in the frame of the request. */
static __always_inline int wire_arp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__be32 asked, asker;

	if (data + ETH_HLEN + 28 > end || AT(__be16, data, 12) != bpf_htons(ETH_P_ARP) ||
	    AT(__be16, data, ETH_HLEN + 6) != bpf_htons(1) || AT(__be16, data, ETH_HLEN + 2) != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	asker = AT(__be32, data, ETH_HLEN + 14);
	asked = AT(__be32, data, ETH_HLEN + 24);
	if (bpf_ntohl(asked) - settings.client[port.index & (WIRE_PORTS - 1)].first >= settings.addresses)
		return XDP_PASS;
	__builtin_memmove(data, data + ETH_ALEN, ETH_ALEN);
	AT(__u32, data, ETH_ALEN) = port.mac;
	AT(__u16, data, ETH_ALEN + 4) = port.mac >> 32;
	AT(__be16, data, ETH_HLEN + 6) = bpf_htons(2);
	__builtin_memcpy(data + ETH_HLEN + 18, data, ETH_ALEN);
	AT(__be32, data, ETH_HLEN + 24) = asker;
	__builtin_memcpy(data + ETH_HLEN + 8, data + ETH_ALEN, ETH_ALEN);
	AT(__be32, data, ETH_HLEN + 14) = asked;
	return XDP_TX;
}

SEC("xdp")
int wire_client(struct xdp_md *ctx)
{
	struct wire_packet seen = {};
	enum wire_read read = wire_parse(ctx, &seen);
	struct wire_client_ctx v = { .seen = &seen, .control = wire_controlled() };
	__u32 row = port.row;

	if (read == WIRE_READ_OTHER)
		return wire_arp(ctx);
	v.counts = bpf_map_lookup_elem(&wire_port_counts, &row);
	if (!v.counts || !v.control)
		return XDP_ABORTED;
	if (wire_for_flood(v.control, seen.destination)) {
		wire_count(v.counts, WIRE_COUNT_FLOOD);
		return XDP_DROP;
	}
	if (bpf_ntohl(seen.destination) - settings.client[port.index & (WIRE_PORTS - 1)].first >= settings.addresses)
		return XDP_PASS;
	wire_count(v.counts, WIRE_COUNT_RECEIVED);
	if (read == WIRE_READ_MALFORMED) {
		wire_count(v.counts, WIRE_COUNT_MALFORMED);
		return XDP_DROP;
	}
	v.now = bpf_ktime_get_ns();
	return wire_client_packet(ctx, &v, read);
}

SEC("xdp")
int wire_server(struct xdp_md *ctx)
{
	struct wire_packet seen = {};
	struct wire_server_ctx c = { .seen = &seen, .control = wire_controlled() };
	enum wire_read read;
	__u32 row = port.row;

	c.counts = bpf_map_lookup_elem(&wire_port_counts, &row);
	if (!c.counts || !c.control || wire_decap(ctx))
		return XDP_ABORTED;
	read = wire_parse(ctx, &seen);
	if (read == WIRE_READ_OTHER || !wire_for_server(&c))
		return XDP_PASS;
	if (wire_for_flood(c.control, seen.source)) {
		wire_count(c.counts, WIRE_COUNT_FLOOD);
		return XDP_DROP;
	}
	wire_count(c.counts, WIRE_COUNT_RECEIVED);
	if (read != WIRE_READ) {
		wire_count(c.counts, read == WIRE_READ_CHECKSUM ? WIRE_COUNT_CHECKSUM : WIRE_COUNT_MALFORMED);
		return XDP_DROP;
	}
	if (seen.protocol == IPPROTO_TCP)
		return wire_server_tcp(ctx, &c);
	if (c.control->kind == WIRE_UDP)
		return wire_server_datagram(ctx, &c);
	return wire_server_dns(ctx, &c);
}

SEC("xdp")
int wire_sender(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct wire_run t = {
		.control = wire_controlled(),
		.sender = bpf_map_lookup_elem(&wire_progressed, &zero),
	};

	if (!t.control || !t.sender || *(volatile __u32 *)&t.control->stopped)
		return XDP_DROP;
	t.now = wire_now(t.control, t.sender);
	return wire_run_sender(ctx, &t);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
