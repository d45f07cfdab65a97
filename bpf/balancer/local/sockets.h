/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of a socket: its backend for each VIP. The process that owns it may use it on several CPUs at once. A peer
 * is acquired and released by compare-and-swap of its state word; a reader reads that word before and after. */
#pragma once

#include "maps.h"
#include "../flow/load.h"
#include "../parse.h"

static __always_inline struct local_socket *socket_of(__u64 cookie)
{
	return bpf_map_lookup_elem(&local_sockets, &cookie);
}

static __always_inline __u32 peer_state(const struct local_peer *peer)
{
	return *(const volatile __u32 *)&peer->state;
}

static __always_inline bool is_current(__u32 state)
{
	return (state & PEER_STATE) == PEER_CONNECTED || (state & PEER_STATE) == PEER_SENT;
}

/* enter_peer_state replaces the state that was read by another. */
static __always_inline bool enter_peer_state(struct local_peer *peer, __u32 old,
					     enum peer_state next)
{
	__u32 word = ((old & ~PEER_STATE) + PEER_CHANGE) | next;

	return __sync_val_compare_and_swap(&peer->state, old, word) == old;
}

/* peer_count has local_peer.counted of a peer, and the service and backend that count it. */
struct peer_count {
	__u32 word;
	__u32 service;
	__u32 backend;
};

/* count_of reads it before the peer is released by exchanging the state that was read. If the exchange succeeds, the
 * count is that peer's; after it, another thread may take the place at once. */
static __always_inline struct peer_count count_of(const struct local_peer *peer)
{
	struct peer_count count;

	peer = READ_AFTER(is_weak(), peer, &peer->state);
	count.word = *(const volatile __u32 *)&peer->counted;
	count.service = *(const volatile __u32 *)&peer->service;
	count.backend = *(const volatile __u32 *)&peer->backend;
	return count;
}

/* uncount subtracts a peer that was released from the flows of its backend and its service, once. */
static __always_inline void uncount(struct local_peer *peer, struct peer_count count)
{
	if (count.word && __sync_val_compare_and_swap(&peer->counted, count.word, 0) == count.word)
		count_flow(count.service, count.backend, -1);
}

/* retire marks a peer that a socket no longer sends to: datagrams that still come from it are shown as the VIP's. */
static __always_inline void retire(struct local_peer *peer, __u32 state)
{
	struct peer_count count = count_of(peer);

	if (is_current(state) && enter_peer_state(peer, state, PEER_PREVIOUS))
		uncount(peer, count);
}

/* retire_connected retires the peer that a socket is connected to. */
static __always_inline void retire_connected(struct local_socket *socket)
{
	for (int i = 0; i < LOCAL_PEERS; i++) {
		__u32 state = peer_state(&socket->peers[i]);

		if ((state & PEER_STATE) == PEER_CONNECTED)
			retire(&socket->peers[i], state);
	}
}

/* peer_rank ranks peers by the loss if their place is reused: lowest a free place, then a previous peer, then a peer
 * that the socket sends to, by the time of the last datagram, and highest the peer that it is connected to. */
static __always_inline __u64 peer_rank(const struct local_peer *peer, __u32 state, __u32 now)
{
	switch (state & PEER_STATE) {
	case PEER_FREE:
		return 0;
	case PEER_PREVIOUS:
		return 1;
	case PEER_SENT:
		return 2 + (__u64)(__u32)~(now - peer->seen);
	}
	return ~0ULL;
}

/* claim_peer acquires the place of the peer with the lowest rank for another peer, and leaves it PEER_BUSY. */
static __always_inline struct local_peer *claim_peer(struct local_socket *socket, __u32 now)
{
	__u64 lowest = ~0ULL;
	__u32 at = 0, lowest_state = 0;
	struct peer_count count;
	struct local_peer *peer;

	for (__u32 i = 0; i < LOCAL_PEERS; i++) {
		__u32 state = peer_state(&socket->peers[i]);
		__u64 rank = peer_rank(&socket->peers[i], state, now);

		if (rank < lowest) {
			lowest = rank;
			at = i;
			lowest_state = state;
		}
	}
	if (lowest == ~0ULL || at >= LOCAL_PEERS)
		return NULL;
	peer = &socket->peers[at];
	count = count_of(peer);
	if (!enter_peer_state(peer, lowest_state, PEER_BUSY))
		return NULL;
	uncount(peer, count);
	return peer;
}

/* is_for reports whether a peer was selected for a packet's destination. */
static __always_inline bool is_for(const struct local_peer *peer, const struct packet *packet)
{
	return peer->vip_port == packet->destination_port && peer->ipv6 == packet->ipv6 &&
	       same_address(peer->vip, packet->destination);
}

/* find_current looks up a socket's backend for a packet's destination. It returns the peer, and a copy of it as of that
 * moment; NULL if there is none. */
static __always_inline struct local_peer *find_current(struct local_socket *socket,
						       const struct packet *packet,
						       struct local_peer *copy)
{
	for (int i = 0; i < LOCAL_PEERS; i++) {
		struct local_peer *peer = &socket->peers[i];
		__u32 state = peer_state(peer);

		/* The peer is read between the two readings of its state. */
		peer = READ_AFTER(is_weak(), peer, &peer->state);
		if (!is_current(state) || !is_for(peer, packet))
			continue;
		__builtin_memcpy(copy, peer, sizeof(*copy));
		copy->state = state;
		order_all(is_weak());
		if (peer_state(peer) == state)
			return peer;
	}
	return NULL;
}

/* find_vip looks up the VIP of the backend that is the packet's destination, for a socket, and writes it there; false
 * where there is none. */
static __always_inline bool find_vip(struct local_socket *socket, struct packet *packet,
				     bool connected)
{
	for (int i = 0; i < LOCAL_PEERS; i++) {
		struct local_peer *peer = &socket->peers[i];
		__u32 state = peer_state(peer), kind = state & PEER_STATE;
		__be32 vip[4];
		__be16 port;

		peer = READ_AFTER(is_weak(), peer, &peer->state);
		if (kind < PEER_CONNECTED || (connected && kind != PEER_CONNECTED))
			continue;
		if (peer->port != packet->destination_port || peer->ipv6 != packet->ipv6 ||
		    !same_address(peer->address, packet->destination))
			continue;
		__builtin_memcpy(vip, peer->vip, sizeof(vip));
		port = peer->vip_port;
		order_all(is_weak());
		if (peer_state(peer) != state)
			continue;
		__builtin_memcpy(packet->destination, vip, sizeof(vip));
		packet->destination_port = port;
		return true;
	}
	return false;
}

/* is_backend_up reports whether a peer's backend still exists and is up. */
static __always_inline bool is_backend_up(void *generation, const struct local_peer *peer)
{
	struct backend *backend = backend_at(generation, peer->backend);

	return backend && backend->generation == peer->generation && backend->up;
}
