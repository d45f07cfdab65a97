/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors are for the sender of the packet that they quote: a backend, if it was sent from a VIP; a client, if it
 * was sent to a backend. The quoted packet gets the reverse translation of the original (RFC 5508). */
#pragma once

#include "../count.h"
#include "../select/select.h"
#include "../select/hairpin.h"
#include "../send/forward.h"
#include "../send/revnat.h"

/* The minimum of the quoted transport header: both ports (RFC 792). */
#define QUOTED_TRANSPORT 8

/* is_error4 and is_error6 report whether a type quotes a packet. */
static __always_inline bool is_error4(__u8 type)
{
	return type == ICMP_DEST_UNREACH || type == ICMP_TIME_EXCEEDED ||
	       type == ICMP_PARAMETERPROB;
}

static __always_inline bool is_error6(__u8 type)
{
	return type >= ICMPV6_DEST_UNREACH && type <= ICMPV6_PARAMPROB;
}

/* is_error reports whether a packet is an ICMP error. */
static __always_inline bool is_error(ctx_t *ctx, const struct packet *packet)
{
	__u32 at = (packet->network & 0xff) + (packet->transport & OFFSET_MASK);
	__u8 *type = ctx_data(ctx) + at;

	if (packet->fragment || (void *)(type + ICMP_HEADER) > ctx_data_end(ctx))
		return false;
	return packet->ipv6 ? packet->protocol == IPPROTO_ICMPV6 && is_error6(*type) :
			      packet->protocol == IPPROTO_ICMP && is_error4(*type);
}

/* parse_quoted reads the quoted packet; false if it has no ports. Its offset in the frame is in quoted->network. */
__noinline int parse_quoted(ctx_t *ctx, const struct packet *packet, struct packet *quoted)
{
	void *header, *data_end = ctx_data_end(ctx);
	enum outcome outcome;
	__be16 *ports;
	__u32 at;

	if (!packet || !quoted)
		return false;
	at = (packet->network & 0xff) + (packet->transport & OFFSET_MASK) + ICMP_HEADER;
	header = ctx_data(ctx) + at;
	__builtin_memset(quoted, 0, sizeof(*quoted));
	outcome = packet->ipv6 ? parse_ipv6(quoted, header, data_end, 0, PART_QUOTED) :
				 parse_ipv4(quoted, header, data_end, 0, PART_QUOTED);
	quoted->network = at;
	if (outcome != OUTCOME_NONE || quoted->later || quoted->unwalked ||
	    (quoted->protocol != IPPROTO_TCP && quoted->protocol != IPPROTO_UDP))
		return false;
	/* Bytes beyond the outer packet are padding. */
	if (at - packet->network + quoted->transport + QUOTED_TRANSPORT > packet->length)
		return false;
	ports = header + (quoted->transport & OFFSET_MASK);
	if ((void *)ports + QUOTED_TRANSPORT > data_end)
		return false;
	quoted->source_port = ports[0];
	quoted->destination_port = ports[1];
	return true;
}

/* quoted_check corrects the quoted transport checksum, if it is quoted, and returns the resulting change of the quote.
 * */
static __always_inline __u64 quoted_check(void *transport, void *data_end, __u8 protocol,
					  __u64 change)
{
	__u32 at = check_offset(protocol);
	__u16 *check = transport + at, old;

	if ((void *)(check + 1) > data_end)
		return 0;
	old = *check;
	if (protocol == IPPROTO_UDP && !old)
		return 0;
	*check = checksum_fix(old, change);
	if (protocol == IPPROTO_UDP && !*check)
		*check = 0xffff;
	return checksum_change16(old, *check);
}

/* translate_quote rewrites the addresses and ports of the quoted packet. It returns the change of the ICMP checksum, or
 * -1 as an error; `end` bounds the outer packet. */
__noinline __u64 translate_quote(ctx_t *ctx, const struct packet *packet,
				 const struct packet *quoted, const struct translation *to)
{
	void *data = ctx_data(ctx), *data_end = ctx_data_end(ctx);
	__u64 change, pseudo, plain;
	__u32 at, transport;
	__be16 *ports;
	__u16 old;

	if (!packet || !quoted || !to)
		return -1;
	at = quoted->network & OFFSET_MASK;
	transport = quoted->transport & OFFSET_MASK;
	ports = data + at + transport;
	change = pseudo = address_changes(quoted, to, quoted->ipv6);
	plain = checksum_change16(quoted->source_port, to->source_port) +
		checksum_change16(quoted->destination_port, to->destination_port);
	if (quoted->ipv6) {
		struct ipv6hdr *ip = data + at;

		if ((void *)(ip + 1) > data_end)
			return -1;
		__builtin_memcpy(&ip->saddr, to->source, sizeof(ip->saddr));
		__builtin_memcpy(&ip->daddr, to->destination, sizeof(ip->daddr));
	} else {
		struct iphdr *ip = data + at;

		if ((void *)(ip + 1) > data_end)
			return -1;
		old = ip->check;
		ip->saddr = to->source[0];
		ip->daddr = to->destination[0];
		ip->check = checksum_fix(old, pseudo);
		change += checksum_change16(old, ip->check);
	}
	if ((void *)ports + QUOTED_TRANSPORT > data_end)
		return -1;
	ports[0] = to->source_port;
	ports[1] = to->destination_port;
	change += plain;
	/* A quote may end before the checksum, followed by padding. */
	if (at - packet->network + transport + check_offset(quoted->protocol) + 2 <=
	    packet->length)
		change += quoted_check(ports, data_end, quoted->protocol, pseudo + plain);
	return change;
}

/* fix_icmp corrects the ICMP checksum for a change of the quote. In IPv6 it also covers the outer addresses; their
 * translation corrects that. */
static __always_inline bool fix_icmp(ctx_t *ctx, const struct packet *packet, __u64 change)
{
	__u32 at = (packet->network & 0xff) + (packet->transport & OFFSET_MASK);
	__u16 *check = ctx_data(ctx) + at + ICMP_CHECK;

	if ((void *)(check + 1) > ctx_data_end(ctx))
		return false;
	*check = checksum_fix(*check, change);
	return true;
}

/* rewrite_quote makes an error quote the packet that its receiver has sent. */
static __always_inline bool rewrite_quote(ctx_t *ctx, const struct packet *packet,
					  const struct packet *quoted,
					  const struct translation *to)
{
	__u64 change = translate_quote(ctx, packet, quoted, to);

	return change != (__u64)-1 && fix_icmp(ctx, packet, change);
}

/* reverse_tuple writes a packet of the opposite direction of the quoted packet's flow, in midstream. */
static __always_inline void reverse_tuple(const struct packet *quoted, struct packet *client)
{
	__builtin_memset(client, 0, sizeof(*client));
	client->ipv6 = quoted->ipv6;
	client->protocol = IPPROTO_TCP;
	client->tcp_flags = TCP_ACK;
	__builtin_memcpy(client->source, quoted->destination, sizeof(client->source));
	__builtin_memcpy(client->destination, quoted->source, sizeof(client->destination));
	client->source_port = quoted->destination_port;
	client->destination_port = quoted->source_port;
}

/* quoted_backend finds the backend that sent the quoted packet, and the translation of its flow. Scratch: reads quoted;
 * writes its opposite and flow. */
static __noinline enum outcome quoted_backend(void *generation, struct scratch *scratch,
					      struct decision *decision)
{
	const struct packet *quoted = &scratch->quoted;
	struct packet *client = &scratch->opposite;
	struct service *service;
	__u64 selection;

	reverse_tuple(quoted, client);
	service = search_service(generation, client, client->destination_port, quoted->protocol);
	if (!service)
		return OUTCOME_PASSED_NO_SERVICE;
	service = service_for_client(generation, service, client, quoted->protocol);
	init_decision(service, client, decision);
	decision->mss = 0;
	identity_translation(client, &scratch->flow);
	selection = peek_backend(service, client, service_hash(service, client));
	return apply_selection(generation, selection, decision, &scratch->flow);
}

/* quote_to_backend translates the quote of an error for a backend into the packet that the backend has sent, against
 * the direction of the flow. Scratch: reads quoted and flow; writes quote. */
static __always_inline void quote_to_backend(struct scratch *scratch,
					     const struct decision *decision)
{
	struct translation *quote = &scratch->quote;

	identity_translation(&scratch->quoted, quote);
	__builtin_memcpy(quote->source, decision->backend->address, sizeof(quote->source));
	__builtin_memcpy(quote->destination, scratch->flow.source, sizeof(quote->destination));
	quote->source_port = decision->backend->port;
	quote->destination_port = scratch->flow.source_port;
}

/* error_to_backend handles an error whose quoted packet came from a VIP. Scratch: reads quoted, and to as the identity
 * (identity_translation()); writes what quoted_backend() does. */
static __always_inline enum outcome error_to_backend(ctx_t *ctx, void *generation,
						const struct packet *packet,
						struct scratch *scratch,
						struct decision *decision)
{
	struct translation *to = &scratch->to;
	enum outcome outcome = quoted_backend(generation, scratch, decision);

	if (outcome != OUTCOME_NONE)
		return outcome;
	if (!decision->backend)
		return OUTCOME_DROPPED_NO_BACKEND;
	trace_add_reason(TRACE_QUOTED);
	trace_backend(decision->backend->index, decision->backend->generation);
	if (ctx_length(ctx) < packet->network + packet->length)
		return OUTCOME_DROPPED_MALFORMED;
	decision->opens = false;
	set_destination(decision, to);
	if (has_returns() && (decision->mode == MODE_NAT || decision->mode == MODE_FULLNAT)) {
		/* Before the quote is rewritten: a packet that cannot be forwarded is dropped unchanged. */
		if (!ttl_remains(ctx, packet))
			return OUTCOME_DROPPED_TIME_EXCEEDED;
		if (packet->length > decision->backend->mtu)
			return OUTCOME_DROPPED_TOO_BIG;
		__builtin_memcpy(to->source,
				 decision->mode == MODE_FULLNAT ? scratch->flow.source : packet->source,
				 sizeof(to->source));
		quote_to_backend(scratch, decision);
		if (!rewrite_quote(ctx, packet, &scratch->quoted, &scratch->quote))
			return OUTCOME_DROPPED_MALFORMED;
	}
	return forward(ctx, packet, decision, to);
}

/* error_to_client handles an error whose quoted packet was sent by a client to the VIP and forwarded to a backend.
 * Scratch: reads quoted, quote, to, and in mode nat opposite; route is its own. */
static __noinline enum outcome error_to_client(ctx_t *ctx, const struct packet *packet,
					       struct scratch *scratch,
					       struct decision *decision)
{
	struct translation *to = &scratch->to;
	struct route *route = &scratch->route;
	enum outcome outcome;
	enum route_result result;

	if (ctx_length(ctx) < packet->network + packet->length)
		return OUTCOME_DROPPED_MALFORMED;
	if (decision->mode == MODE_NAT && !is_reply(&scratch->opposite, false))
		return OUTCOME_PASSED_NO_FLOW;
	result = find_route(ctx, packet, to, route);
	if (result == ROUTE_NONE)
		return OUTCOME_DROPPED_NO_ROUTE;
	outcome = non_reply_outcome(result, decision);
	if (outcome != OUTCOME_NONE)
		return outcome;
	if (result != ROUTE_KERNEL && result != ROUTE_NOT_FORWARDED && !ttl_remains(ctx, packet))
		return OUTCOME_DROPPED_TIME_EXCEEDED;
	if (result == ROUTE_TOO_BIG && (packet->ipv6 || packet->dont_fragment))
		return OUTCOME_DROPPED_TOO_BIG;
	to->ttl_decrement = result == ROUTE_FOUND;
	if (!rewrite_quote(ctx, packet, &scratch->quoted, &scratch->quote))
		return OUTCOME_DROPPED_MALFORMED;
	outcome = translate(ctx, packet, to);
	if (outcome != OUTCOME_NONE)
		return outcome;
	return send_by_route(ctx, packet, decision, result, route);
}

/* quoted_fullnat handles a quoted packet whose source is a flow's address and port of the pool. The error is translated
 * like a reply to that packet. Scratch: reads quoted; writes opposite, flow, and the new addresses and ports in to and
 * quote. */
static __always_inline bool quoted_fullnat(void *generation, struct scratch *scratch,
					   struct decision *decision)
{
	struct translation *origin = &scratch->flow, *to = &scratch->to;
	struct translation *quote = &scratch->quote;

	reverse_tuple(&scratch->quoted, &scratch->opposite);
	scratch->opposite.protocol = scratch->quoted.protocol;
	identity_translation(&scratch->opposite, origin);
	if (!return_fullnat(generation,
			    find_return(&scratch->opposite, hash_return(&scratch->opposite), 0),
			    decision, origin))
		return false;
	__builtin_memcpy(to->source, origin->source, sizeof(to->source));
	__builtin_memcpy(to->destination, origin->destination, sizeof(to->destination));
	__builtin_memcpy(quote->source, origin->destination, sizeof(quote->source));
	__builtin_memcpy(quote->destination, origin->source, sizeof(quote->destination));
	quote->source_port = origin->destination_port;
	quote->destination_port = origin->source_port;
	return true;
}

/* quoted_nat handles a quoted packet to a backend's endpoint. Scratch: reads quoted; writes opposite, and the new
 * addresses and ports in to and quote. */
static __always_inline bool quoted_nat(void *generation, const struct packet *packet,
				       struct scratch *scratch, struct decision *decision)
{
	const struct packet *quoted = &scratch->quoted;
	struct endpoint *endpoint;

	reverse_tuple(quoted, &scratch->opposite);
	scratch->opposite.protocol = quoted->protocol;
	endpoint = endpoint_of(generation, &scratch->opposite, scratch->opposite.source_port,
			       quoted->protocol);
	if (!endpoint || !same_address(packet->destination, quoted->source))
		return false;
	if (same_address(packet->source, quoted->destination))
		__builtin_memcpy(scratch->to.source, endpoint->vip, sizeof(scratch->to.source));
	__builtin_memcpy(scratch->quote.destination, endpoint->vip,
			 sizeof(scratch->quote.destination));
	scratch->quote.destination_port = endpoint->port;
	scratch->to.exceptions = endpoint->exceptions;
	decision->mode = MODE_NAT;
	decision->backend = backend_at(generation, endpoint->backend);
	return decision->backend;
}

/* is_unreachable reports whether an error is "destination unreachable" and was sent by the destination of the quoted
 * packet itself: no program listens on the port, or its firewall rejects. */
static __always_inline bool is_unreachable(ctx_t *ctx, const struct packet *packet,
					   const struct packet *quoted)
{
	__u32 at = (packet->network & 0xff) + (packet->transport & OFFSET_MASK);
	__u8 *icmp = ctx_data(ctx) + at;

	if ((void *)(icmp + ICMP_HEADER) > ctx_data_end(ctx) ||
	    !same_address(packet->source, quoted->destination))
		return false;
	return packet->ipv6 ? icmp[0] == ICMPV6_DEST_UNREACH :
			      icmp[0] == ICMP_DEST_UNREACH && icmp[1] != ICMP_FRAG_NEEDED;
}

/* relay_error forwards an ICMP error to the sender of the packet that it quotes. Scratch: writes quoted, and the
 * translations of the packet and of its quote in to and quote. */
static __noinline enum outcome relay_error(ctx_t *ctx, void *generation,
					   const struct packet *packet,
					   struct decision *decision)
{
	struct scratch *scratch = get_scratch();
	enum outcome outcome;
	bool unreachable;
	__u32 kind;

	if (!scratch || !parse_quoted(ctx, packet, &scratch->quoted))
		return OUTCOME_PASSED_NO_SERVICE;
	identity_translation(packet, &scratch->to);
	identity_translation(&scratch->quoted, &scratch->quote);
	kind = kind_of(packet);
	if (kind == KIND_VIP) {
		if (!same_address(packet->destination, scratch->quoted.source))
			return OUTCOME_PASSED_NO_SERVICE;
		return error_to_backend(ctx, generation, packet, scratch, decision);
	}
	if (!has_returns())
		return OUTCOME_PASSED_NO_SERVICE;
	if (kind == KIND_POOL) {
		if (!has_mode(MODE_FULLNAT) || !quoted_fullnat(generation, scratch, decision))
			return OUTCOME_PASSED_NO_SERVICE;
	} else if (!(has_hairpins() && quoted_fullnat(generation, scratch, decision)) &&
		   !quoted_nat(generation, packet, scratch, decision)) {
		return OUTCOME_PASSED_NO_SERVICE;
	}
	trace_add_reason(TRACE_QUOTED);
	trace_backend(decision->backend->index, decision->backend->generation);
	unreachable = is_unreachable(ctx, packet, &scratch->quoted);
	outcome = error_to_client(ctx, packet, scratch, decision);
	trace_add_reason(reply_trace_reason(outcome));
	if (unreachable && (outcome == OUTCOME_RETURNED || outcome == OUTCOME_PASSED_TO_ROUTE))
		count_unreachable(&decision->backend->index);
	return outcome;
}
