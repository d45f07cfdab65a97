/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Full NAT: a flow has an address and port of the pool for as long as it lives.
 * Both ends of it are remembered, under what packets from either side bear. */
#pragma once

#include "select.h"
#include "translate.h"

/* Ports of the pool that a new flow tries. Of a pool that is nine tenths full,
 * one flow in thirty finds none. */
#define PORT_ATTEMPTS 32
/* A flow's time is noted at most this often, in jiffies, of which a second has 100
 * to 1000: each note makes a cache line dirty. Reading the jiffies is a load; the
 * clock would be a call for each packet. */
#define NOTE_EVERY 100
#define EEXIST 17

static __always_inline void nat_key(const struct packet *packet, const struct service *service,
				    struct flow_key *key)
{
	__builtin_memcpy(key->address, packet->source, sizeof(key->address));
	key->service = service->id;
	key->port = packet->source_port;
	key->pad = 0;
}

/* nat_closed says whether both sides have ended a flow, RFC 5382 section 5. */
static __always_inline bool nat_closed(__u16 state)
{
	const __u16 both = NAT_CLIENT_FIN | NAT_BACKEND_FIN;

	return (state & NAT_RESET) || (state & both) == both;
}

/* nat_note keeps a flow's state and time. */
static __always_inline void nat_note(struct nat_flow *flow, const struct packet *packet,
				     __u16 fin)
{
	__u32 now = bpf_jiffies64();
	__u16 state = flow->state;

	if (dry_run())
		return;
	if (packet->tcp_flags & TCP_FIN)
		state |= fin;
	if (packet->tcp_flags & TCP_RST)
		state |= NAT_RESET;
	if (fin == NAT_BACKEND_FIN)
		state |= NAT_REPLIED;
	if (state != flow->state)
		flow->state = state;
	if (now - flow->noted <= NOTE_EVERY)
		return;
	flow->noted = now;
	flow->seen = bpf_ktime_get_coarse_ns();
}

/* nat_return_of names the other end of a flow. */
static __always_inline void nat_return_of(const struct nat_flow *flow, struct nat_return_key *key)
{
	__builtin_memcpy(key->source, flow->backend_address, sizeof(key->source));
	__builtin_memcpy(key->destination, flow->address, sizeof(key->destination));
	key->source_port = flow->backend_port;
	key->destination_port = flow->port;
	key->protocol = flow->protocol;
	__builtin_memset(key->pad, 0, sizeof(key->pad));
}

/* nat_candidate writes the pool's address and port that an attempt tries. */
static __always_inline bool nat_candidate(void *generation, bool ipv6, __u32 hash,
					  struct nat_flow *flow)
{
	__u32 count = ipv6 ? loaded.pool6_count : loaded.pool4_count;
	__u32 ports = loaded.last_port - loaded.first_port + 1;
	__be32 *address = pool_at(generation, ipv6, hash_scale(hash * 0x85ebca6b, count));

	if (!address)
		return false;
	__builtin_memcpy(flow->address, address, sizeof(flow->address));
	flow->port = bpf_htons(loaded.first_port + hash_scale(hash, ports));
	return true;
}

/* nat_claim finds an address and port that no other flow to the same backend has,
 * and makes them those of the new flow in the scratch memory. */
__noinline int nat_claim(__u32 ipv6, __u32 hash)
{
	void *generation = current_generation();
	struct scratch *scratch = get_scratch();
	struct nat_return_key *key;
	/* Not long: before Linux 6.4 only half of the register is what the map
	 * returned. */
	int error;

	if (!generation || !scratch)
		return OUTCOME_DROPPED_NO_PORT;
	key = &scratch->nat_return_key;
	for (int i = 0; i < PORT_ATTEMPTS; i++) {
		if (!nat_candidate(generation, ipv6, hash, &scratch->nat_flow))
			return OUTCOME_DROPPED_NO_PORT;
		nat_return_of(&scratch->nat_flow, key);
		if (dry_run()) {
			if (!bpf_map_lookup_elem(&nat_returns, key))
				return OUTCOME_NONE;
		} else {
			error = bpf_map_update_elem(&nat_returns, key, &scratch->nat_return,
						    BPF_NOEXIST);
			if (!error)
				return OUTCOME_NONE;
			if (error != -EEXIST)
				return OUTCOME_DROPPED_FLOW_TABLE_FULL;
		}
		hash = hash * 0x9e3779b1 + 0x7f4a7c15;
	}
	return OUTCOME_DROPPED_NO_PORT;
}

/* nat_forget frees what a flow had. */
static __always_inline void nat_forget(struct scratch *scratch, const struct flow_key *key,
				       const struct nat_flow *flow)
{
	if (dry_run())
		return;
	nat_return_of(flow, &scratch->nat_return_key);
	bpf_map_delete_elem(&nat_returns, &scratch->nat_return_key);
	bpf_map_delete_elem(&nat_flows, key);
}

/* nat_choose picks the backend of a new flow: by turn or by hash. */
static __always_inline struct backend *nat_choose(void *generation, struct decision *decision,
						  const struct packet *packet)
{
	const struct service *service = decision->service;
	__u64 index = pick_simply(service, service_hash(service, packet));

	return index < PICK_NONE ? backend_at(generation, index) : NULL;
}

/* nat_describe writes a new flow, but for its address and port. */
static __always_inline void nat_describe(struct scratch *scratch, const struct packet *packet,
					 const struct decision *decision)
{
	const struct backend *backend = decision->backend;
	struct nat_return *back = &scratch->nat_return;
	struct nat_flow *flow = &scratch->nat_flow;

	flow->seen = bpf_ktime_get_coarse_ns();
	flow->noted = bpf_jiffies64();
	flow->backend = backend->index;
	flow->generation = backend->generation;
	flow->state = packet->protocol == IPPROTO_UDP ? NAT_UDP : 0;
	flow->backend_port = backend->port;
	flow->protocol = packet->protocol;
	__builtin_memcpy(flow->backend_address, backend->address, sizeof(backend->address));
	back->told = 0;
	back->client = scratch->nat_key;
	__builtin_memcpy(back->vip, packet->destination, sizeof(back->vip));
	back->vip_port = packet->destination_port;
	back->mss = decision->mss;
	back->backend = backend->index;
	back->generation = backend->generation;
}

/* nat_join takes up a flow that another CPU has made since we looked: the client has
 * sent its SYN twice. */
static __always_inline enum outcome nat_join(void *generation, struct scratch *scratch,
					     struct decision *decision)
{
	struct nat_flow *flow = bpf_map_lookup_elem(&nat_flows, &scratch->nat_key);

	if (!flow)
		return OUTCOME_DROPPED_NO_FLOW;
	scratch->nat_flow = *flow;
	decision->backend = backend_at(generation, flow->backend);
	decision->opens = false;
	return decision->backend ? OUTCOME_NONE : OUTCOME_DROPPED_NO_FLOW;
}

/* nat_open makes a new flow in the scratch memory, and remembers it. */
static __always_inline enum outcome nat_open(void *generation, struct scratch *scratch,
					     const struct packet *packet,
					     struct decision *decision)
{
	enum outcome outcome;
	int error;

	if (!decision->service->table_size)
		return OUTCOME_DROPPED_NO_BACKEND;
	decision->backend = nat_choose(generation, decision, packet);
	if (!decision->backend)
		return OUTCOME_DROPPED_NO_BACKEND;
	decision->opens = true;
	trace_because(TRACE_NEW_FLOW);
	nat_describe(scratch, packet, decision);
	outcome = nat_claim(packet->ipv6, decision->hash);
	if (outcome != OUTCOME_NONE || dry_run())
		return outcome;
	error = bpf_map_update_elem(&nat_flows, &scratch->nat_key, &scratch->nat_flow, BPF_NOEXIST);
	if (!error)
		return OUTCOME_NONE;
	/* The port goes back, or nobody would ever. */
	nat_return_of(&scratch->nat_flow, &scratch->nat_return_key);
	bpf_map_delete_elem(&nat_returns, &scratch->nat_return_key);
	return error == -EEXIST ? nat_join(generation, scratch, decision) :
				  OUTCOME_DROPPED_FLOW_TABLE_FULL;
}

/* nat_usable says whether a packet goes on in a flow that is known. */
static __always_inline bool nat_usable(void *generation, const struct nat_flow *flow,
				       const struct packet *packet, struct decision *decision)
{
	struct backend *backend = backend_at(generation, flow->backend);

	if (!backend || backend->generation != flow->generation)
		return false;
	if (nat_closed(flow->state) && opens_connection(packet))
		return false;
	decision->backend = backend;
	return true;
}

/* nat_source writes what the source of a flow's packets becomes. */
static __always_inline void nat_source(const struct nat_flow *flow, struct translation *to)
{
	__builtin_memcpy(to->source, flow->address, sizeof(to->source));
	to->source_port = flow->port;
}

static __always_inline struct nat_flow *nat_find_inline(const struct packet *packet,
							const struct service *service)
{
	struct flow_key key;

	nat_key(packet, service, &key);
	return bpf_map_lookup_elem(&nat_flows, &key);
}

/* nat_find is the same off the common ways. */
static __noinline struct nat_flow *nat_find(const struct packet *packet,
					    const struct service *service)
{
	return nat_find_inline(packet, service);
}

/* nat_known uses the flow that was found, unless it must begin anew. */
static __always_inline enum outcome nat_known(void *generation, struct nat_flow *flow,
					      const struct packet *packet,
					      struct decision *decision, struct translation *to)
{
	if (!flow || !nat_usable(generation, flow, packet, decision))
		return OUTCOME_DROPPED_NO_FLOW;
	if (!decision->backend->up)
		return OUTCOME_DROPPED_BACKEND_DOWN;
	nat_source(flow, to);
	trace_because(TRACE_KNOWN_FLOW);
	return OUTCOME_NONE;
}

/* select_flow finds a packet's flow, or makes one if it may open one. The choice
 * is in *decision, the source that it gets in *to. */
static __always_inline enum outcome select_flow(void *generation, const struct packet *packet,
						struct decision *decision,
						struct translation *to)
{
	struct nat_flow *flow = nat_find_inline(packet, decision->service);
	struct scratch *scratch;
	enum outcome outcome;

	outcome = nat_known(generation, flow, packet, decision, to);
	if (outcome != OUTCOME_DROPPED_NO_FLOW) {
		if (outcome == OUTCOME_NONE)
			nat_note(flow, packet, NAT_CLIENT_FIN);
		return outcome;
	}
	if (packet->protocol == IPPROTO_TCP && !opens_connection(packet))
		return OUTCOME_DROPPED_NO_FLOW;
	scratch = get_scratch();
	if (!scratch)
		return OUTCOME_DROPPED_NO_FLOW;
	nat_key(packet, decision->service, &scratch->nat_key);
	if (flow)
		nat_forget(scratch, &scratch->nat_key, flow);
	outcome = nat_open(generation, scratch, packet, decision);
	if (outcome == OUTCOME_NONE)
		nat_source(&scratch->nat_flow, to);
	return outcome;
}

/* nat_reply finds the flow of a packet with these ends, as a backend sent it. */
static __always_inline struct nat_return *nat_reply_inline(const struct packet *packet)
{
	struct nat_return_key key = {
		.source_port = packet->source_port,
		.destination_port = packet->destination_port,
		.protocol = packet->protocol,
	};

	__builtin_memcpy(key.source, packet->source, sizeof(key.source));
	__builtin_memcpy(key.destination, packet->destination, sizeof(key.destination));
	return bpf_map_lookup_elem(&nat_returns, &key);
}

/* nat_reply is the same off the common ways. */
static __noinline struct nat_return *nat_reply(const struct packet *packet)
{
	return nat_reply_inline(packet);
}

/* nat_note_reply tells the flow what its backend sent: what ends it, that it
 * answered at all, and now and then that it lives. Most replies tell nothing new,
 * and cost no search for it. */
static __always_inline void nat_note_reply(struct nat_return *back, const struct packet *packet)
{
	__u64 now = bpf_jiffies64();
	struct nat_flow *flow;

	if (dry_run())
		return;
	if (!(packet->tcp_flags & (TCP_FIN | TCP_RST)) && now - back->told <= NOTE_EVERY)
		return;
	back->told = now;
	flow = bpf_map_lookup_elem(&nat_flows, &back->client);
	if (flow)
		nat_note(flow, packet, NAT_BACKEND_FIN);
}
