/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets that no filter matches, and no sample has, go on to the plain program: the traced one costs more for each
 * decision that it records. */
#pragma once

#include "filter.h"
#include "sample.h"

/* capture_match_slot matches a plain packet against the filter in a slot, but for the sample. It is a function of its
 * own: the verifier would carry what each comparison says of the packet through the comparisons of all other slots. */
__noinline int capture_match_slot(const struct trace_tuple *packet, __u32 slot)
{
	const struct capture_slots *filters = capture_all();
	const struct capture_filter *filter;

	if (!filters || !packet)
		return true;
	filter = &filters->slots[slot & (CAPTURES_MAX - 1)];
	return capture_may_match(filter, packet) && capture_may_be_service(filter, packet);
}

/* capture_match_plain matches a plain packet against all filters, draws their samples, and keeps the result for
 * capture_begin(). */
static __always_inline bool capture_match_plain(const struct capture_slots *filters,
						const struct trace_tuple *packet)
{
	struct trace_notes *notes;
	bool matches = false;

	for (__u32 i = 0; i < CAPTURES_MAX; i++) {
		if (i >= filters->used)
			break;
		if (!capture_match_slot(packet, i))
			continue;
		notes = trace_current();
		if (!notes)
			return true;
		if (!capture_draw(notes, &filters->slots[i], i))
			continue;
		notes->drawn |= CAPTURE_DRAWN | 1U << i;
		matches = true;
	}
	return matches;
}

enum capture_verdict {
	/* No filter matches the packet, or no sample has it. */
	CAPTURE_NONE,
	/* A sample of a filter has the packet. */
	CAPTURE_SAMPLED,
	/* The filters must be compared one by one. */
	CAPTURE_COMPARE,
};

/* capture_draw_only draws the sample of the filter in a slot, which matches the packet as the only one. */
static __always_inline enum capture_verdict capture_draw_only(const struct capture_slots *filters,
							      __u32 slot)
{
	struct trace_notes *notes = trace_current();

	slot &= CAPTURES_MAX - 1;
	if (!notes)
		return CAPTURE_COMPARE;
	if (!capture_draw(notes, &filters->slots[slot], slot))
		return CAPTURE_NONE;
	notes->drawn = CAPTURE_DRAWN | 1U << slot;
	return CAPTURE_SAMPLED;
}

/* capture_pass compares a plain packet with what all filters have in common. `ports` has both ports as in the header:
 * filters do not compare them where both are 0. A reply goes to the client, or to a port of full NAT's. */
static __always_inline enum capture_verdict capture_pass(const struct capture_slots *filters,
							 const __be32 *source, const __be32 *destination,
							 __be32 ports, __u8 protocol, bool ipv6)
{
	const struct capture_gate *gate = &filters->gates[filters->gate & 1][ipv6];

	if (!gate->open)
		return CAPTURE_NONE;
	if (!ports)
		return CAPTURE_COMPARE;
	if (!(capture_differs(source, gate->client, gate->client_mask, ipv6) |
	      capture_differs(destination, gate->vip, gate->vip_mask, ipv6) |
	      ((ports & gate->ports_mask) ^ gate->ports) |
	      ((protocol & gate->protocol_mask) ^ gate->protocol)))
		return gate->only ? capture_draw_only(filters, gate->only - 1) : CAPTURE_COMPARE;
	if (has_mode(MODE_FULLNAT) && capture_is_pooled_port(bpf_ntohs(ports >> 16)))
		return CAPTURE_COMPARE;
	if (has_mode(MODE_NAT) && !capture_differs(destination, gate->client, gate->client_mask, ipv6))
		return CAPTURE_COMPARE;
	return CAPTURE_NONE;
}

/* capture_ports returns the ports of a plain packet (TCP or UDP without options, extension headers or fragments), and
 * NULL for another. */
static __always_inline const __be16 *capture_ports(const void *header, const void *data_end, bool ipv6)
{
	const struct iphdr *ip = header;
	const __be16 *ports = header + (ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));

	if ((const void *)(ports + 2) > data_end)
		return NULL;
	if (ipv6)
		return is_plain6(header, data_end) ? ports : NULL;
	if (!is_plain4(header, data_end) || (ip->frag_off & bpf_htons(IP_FRAGMENT_BITS)) ||
	    !trace_has_ports(ip->protocol))
		return NULL;
	return ports;
}

/* capture_match_ip compares a packet with each filter by its IP header. A packet that is not plain may match. */
static __always_inline int capture_match_ip(ctx_t *ctx, const struct capture_slots *filters,
					     const void *header, bool ipv6)
{
	const __be16 *ports = capture_ports(header, ctx_data_end(ctx), ipv6);
	const struct ipv6hdr *ip6 = header;
	const struct iphdr *ip4 = header;
	struct trace_tuple packet = {};

	if (!ports)
		return true;
	if (ipv6) {
		__builtin_memcpy(packet.source, &ip6->saddr, sizeof(packet.source));
		__builtin_memcpy(packet.destination, &ip6->daddr, sizeof(packet.destination));
	} else {
		packet.source[0] = ip4->saddr;
		packet.destination[0] = ip4->daddr;
	}
	packet.protocol = ipv6 ? ip6->nexthdr : ip4->protocol;
	packet.family = ipv6 ? 6 : 4;
	packet.source_port = ports[0];
	packet.destination_port = ports[1];
	return capture_match_plain(filters, &packet);
}

/* capture_pass_ip is capture_pass by the IP header. */
static __always_inline int capture_pass_ip(ctx_t *ctx, const struct capture_slots *filters,
					   const void *header, bool ipv6)
{
	const __be16 *ports = capture_ports(header, ctx_data_end(ctx), ipv6);
	const struct ipv6hdr *ip6 = header;
	const struct iphdr *ip4 = header;

	if (!ports)
		return CAPTURE_COMPARE;
	if (ipv6)
		return capture_pass(filters, (const __be32 *)&ip6->saddr, (const __be32 *)&ip6->daddr,
				    *(const __be32 *)ports, ip6->nexthdr, true);
	return capture_pass(filters, &ip4->saddr, &ip4->daddr, *(const __be32 *)ports, ip4->protocol, false);
}

/* capture_frame calls by_ip with the IP header of a frame as received, and returns its result; `unknown` for a frame
 * that has none. The calls are inlined. */
static __always_inline int capture_frame(ctx_t *ctx, int unknown,
					 int (*by_ip)(ctx_t *, const struct capture_slots *, const void *, bool))
{
	const struct capture_slots *filters = capture_all();
	const struct ethhdr *frame = ctx_data(ctx);

	if (!filters || (void *)(frame + 1) > ctx_data_end(ctx))
		return unknown;
	if (frame->h_proto == bpf_htons(ETH_P_IP))
		return by_ip(ctx, filters, frame + 1, false);
	if (frame->h_proto == bpf_htons(ETH_P_IPV6))
		return by_ip(ctx, filters, frame + 1, true);
	return unknown;
}

/* capture_match_frame says whether a filter may match a packet as received. It is a function of its own, so that the
 * verifier does not walk the program behind it once for each path through the filters. */
__noinline int capture_match_frame(ctx_t *ctx)
{
	return capture_frame(ctx, true, capture_match_ip);
}

/* capture_skip hands a packet that no filter matches to the plain program, and does not return then. */
static __always_inline void capture_skip(ctx_t *ctx)
{
	enum capture_verdict verdict;

	if (dry_run())
		return;
	verdict = capture_frame(ctx, CAPTURE_COMPARE, capture_pass_ip);
	if (verdict == CAPTURE_NONE || (verdict == CAPTURE_COMPARE && !capture_match_frame(ctx)))
		bpf_tail_call(ctx, &capture_plain, 0);
}
