/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The backend of a socket: it is chosen when its program connects or sends, as that of a packet
 * that begins a flow is. */
#pragma once

#include "ends.h"
#include "sockets.h"
#include "../choose/choose.h"
#include "../choose/clients.h"
#include "../choose/select.h"

/* Verdicts of a program at a system call. */
#define REFUSE 0
#define PROCEED 1

#define ECONNREFUSED 111

/* refuse has the system call fail: as if nothing listened there, or, where the kernel does not let a
 * program say so, with EPERM. */
static __always_inline int refuse(enum local_event why)
{
	count_event(why);
	if (local.errors && why != LOCAL_REFUSED_DENIED)
		bpf_set_retval(-ECONNREFUSED);
	return REFUSE;
}

/* event_of is the event of a choice that has failed. */
static __always_inline enum local_event event_of(enum outcome outcome)
{
	switch (outcome) {
	case OUTCOME_DROPPED_RATE_LIMIT:
		return LOCAL_REFUSED_RATE_LIMIT;
	case OUTCOME_DROPPED_CONNECTION_LIMIT:
		return LOCAL_REFUSED_CONNECTION_LIMIT;
	case OUTCOME_DROPPED_DENIED:
		return LOCAL_REFUSED_DENIED;
	default:
		return LOCAL_REFUSED_NO_BACKEND;
	}
}

/* attach_client makes the affinity of a client, for its next flow. A program on this host has no need to prove that it
 * is there. Scratch: takes tracking.flow, and what find_affinity() leaves. */
static __always_inline void attach_client(void *generation, const struct service *service,
					  struct tracking *tracking, __u64 choice)
{
	struct backend *backend = backend_at(generation, (__u32)choice);

	if (!backend)
		return;
	tracking->flow.backend = backend->index;
	tracking->flow.generation = backend->generation;
	keep_affinity();
	prove_client(service);
}

/* choose_of_client chooses where the service cares who the client is. */
static __always_inline __u64 choose_of_client(void *generation, const struct service *service,
					      const struct packet *packet)
{
	struct scratch *scratch = lend_scratch();
	__u64 choice;

	if (!scratch)
		return fail_with(OUTCOME_DROPPED_NO_BACKEND);
	if (is_denied(service, packet, packet->ipv6)) {
		choice = fail_with(OUTCOME_DROPPED_DENIED);
	} else {
		flow_of(&scratch->tracking.flow, packet, service->id);
		choice = pick_for_new(service, service_hash(service, packet));
		if ((service->flags & SERVICE_PERSISTENT) &&
		    !(choice & (CHOICE_FAILED | CHOICE_OPEN)))
			attach_client(generation, service, &scratch->tracking, choice);
	}
	return_scratch();
	return choice;
}

/* choose chooses the backend of a new flow. */
static __always_inline __u64 choose(void *generation, const struct service *service,
				    const struct packet *packet)
{
	__u64 choice;

	if ((service->flags & SERVICE_PERSISTENT) || has_lists(service))
		choice = choose_of_client(generation, service, packet);
	else
		choice = pick_for_new(service, service_hash(service, packet));
	return choice == CHOICE_OPEN ? fail_with(OUTCOME_DROPPED_NO_BACKEND) : choice;
}

/* write_peer writes which backend a socket got for a packet's destination, but for its state. */
static __always_inline void write_peer(struct local_peer *peer, const struct service *service,
				       const struct backend *backend, const struct packet *packet,
				       __u32 now)
{
	__builtin_memcpy(peer->vip, packet->destination, sizeof(peer->vip));
	__builtin_memcpy(peer->address, backend->address, sizeof(peer->address));
	peer->vip_port = packet->destination_port;
	peer->port = backend->port;
	peer->service = service->id;
	peer->backend = backend->index;
	peer->generation = backend->generation;
	peer->ipv6 = packet->ipv6;
	peer->protocol = packet->protocol;
	peer->seen = now;
	if (service->flags & SERVICE_TRACKED) {
		peer->counted = peer_state(peer) | PEER_COUNTED;
		count_flow(service->id, backend->index, 1);
	}
}

/* remember_socket keeps a socket that has no entry, with its first peer; false where there is no room, or another
 * thread was first. A socket that connects, asks and closes needs no other. It is a call of its own, for inlined beside
 * choosing it would not fit the stack. */
static __noinline bool remember_socket(struct bpf_sock_addr *ctx, const struct service *service,
				       const struct backend *backend, const struct packet *packet,
				       __u32 state)
{
	struct local_socket socket = {};
	__u64 cookie = bpf_get_socket_cookie(ctx);

	write_peer(&socket.peers[0], service, backend, packet, clock_of(current_generation()));
	socket.peers[0].state = PEER_CHANGE | state;
	if (!bpf_map_update_elem(&local_sockets, &cookie, &socket, BPF_NOEXIST))
		return true;
	uncount(&socket.peers[0], count_of(&socket.peers[0]));
	return false;
}

/* remember_peer keeps which backend a socket, whose entry may be there already, got for a packet's
 * destination; false where there is no room. */
static __always_inline bool remember_peer(struct bpf_sock_addr *ctx, void *generation,
					  struct local_socket *socket,
					  const struct service *service,
					  const struct backend *backend,
					  const struct packet *packet, enum peer_state state)
{
	__u32 now = clock_of(generation);
	struct local_peer *peer;

	if (!socket) {
		if (remember_socket(ctx, service, backend, packet, state))
			return true;
		socket = socket_of(bpf_get_socket_cookie(ctx));
		if (!socket)
			return false;
	}
	peer = claim_peer(socket, now);
	if (!peer)
		return false;
	write_peer(peer, service, backend, packet, now);
	enter_peer_state(peer, peer_state(peer), state);
	return true;
}

/* serve gives a socket a backend for the packet's destination, which is of a service. */
static __always_inline int serve(struct bpf_sock_addr *ctx, bool ipv6, void *generation,
				 struct local_socket *socket, const struct service *service,
				 const struct packet *packet, enum peer_state state)
{
	__u64 choice = choose(generation, service, packet);
	struct backend_count *count;
	struct backend *backend;
	__u32 index;

	if (choice & CHOICE_FAILED)
		return refuse(event_of(failure(choice)));
	backend = backend_at(generation, (__u32)choice);
	/* A socket does not change its family; control sees to it that it need not. */
	if (!backend || !backend->ipv6 != !packet->ipv6)
		return refuse(LOCAL_REFUSED_NO_BACKEND);
	if (!remember_peer(ctx, generation, socket, service, backend, packet, state)) {
		if (service->flags & SERVICE_LIMITED)
			return refuse(LOCAL_REFUSED_NO_ROOM);
		count_event(LOCAL_UNREMEMBERED);
	}
	count_event(LOCAL_SERVED);
	index = backend->index;
	count = bpf_map_lookup_elem(&backend_counts, &index);
	/* A datagram may arrive in between. */
	if (count)
		__sync_fetch_and_add(&count->connections, 1);
	write_end(ctx, ipv6, packet->ipv6, backend->address, backend->port);
	return PROCEED;
}

/* asks_for finds the service that a socket asks for; NULL where it is to go on as it is. */
static __always_inline struct service *asks_for(struct bpf_sock_addr *ctx, void *generation,
						struct packet *packet)
{
	struct service *service;

	if (head_of(generation)->orphaned)
		return NULL;
	service = find_service(generation, packet, packet->destination_port, packet->protocol);
	return service && read_own(ctx, packet) ? service : NULL;
}

/* connects is a socket that is about to be connected. */
static __always_inline int connects(struct bpf_sock_addr *ctx, bool ipv6)
{
	void *generation = current_generation();
	struct local_socket *socket;
	struct service *service;
	struct packet packet;

	if (!is_ours(ctx))
		return PROCEED;
	/* It may have been connected before. */
	socket = socket_of(bpf_get_socket_cookie(ctx));
	if (socket)
		retire_connected(socket);
	read_end(ctx, ipv6, &packet);
	service = asks_for(ctx, generation, &packet);
	if (!service)
		return PROCEED;
	if (packet.protocol == IPPROTO_TCP)
		packet.tcp_flags = TCP_SYN;
	return serve(ctx, ipv6, generation, socket, service, &packet, PEER_CONNECTED);
}

/* goes_on_to sends a datagram where the socket's last one for the VIP went; false where there was
 * none, or its backend takes no packets any more. */
static __always_inline bool goes_on_to(struct bpf_sock_addr *ctx, bool ipv6, void *generation,
				       struct local_socket *socket, const struct packet *packet)
{
	struct local_peer copy, *peer = find_current(socket, packet, &copy);

	if (!peer)
		return false;
	if (!takes_packets(generation, &copy)) {
		retire(peer, copy.state);
		count_event(LOCAL_MOVED);
		return false;
	}
	if (peer->seen != clock_of(generation))
		peer->seen = clock_of(generation);
	write_end(ctx, ipv6, packet->ipv6, copy.address, copy.port);
	return true;
}

/* sends is a socket that is about to send a datagram to a destination that its program names. */
static __always_inline int sends(struct bpf_sock_addr *ctx, bool ipv6)
{
	void *generation = current_generation();
	struct local_socket *socket;
	struct service *service;
	struct packet packet;

	if (!is_ours(ctx))
		return PROCEED;
	read_end(ctx, ipv6, &packet);
	service = asks_for(ctx, generation, &packet);
	if (!service)
		return PROCEED;
	socket = socket_of(bpf_get_socket_cookie(ctx));
	if (socket && goes_on_to(ctx, ipv6, generation, socket, &packet))
		return PROCEED;
	return serve(ctx, ipv6, generation, socket, service, &packet, PEER_SENT);
}

/* told shows a program the VIP where it would see the backend that its socket got for it. */
static __always_inline int told(struct bpf_sock_addr *ctx, bool ipv6, bool connected)
{
	struct local_socket *socket;
	struct packet packet;

	if (!is_ours(ctx))
		return PROCEED;
	socket = socket_of(bpf_get_socket_cookie(ctx));
	if (!socket)
		return PROCEED;
	read_end(ctx, ipv6, &packet);
	if (find_vip(socket, &packet, connected))
		write_end(ctx, ipv6, packet.ipv6, packet.destination, packet.destination_port);
	return PROCEED;
}
