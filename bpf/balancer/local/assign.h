/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The backend of a socket: it is selected when the application connects or sends, as for the first packet of a flow. */
#pragma once

#include "addresses.h"
#include "sockets.h"
#include "../select/select.h"
#include "../select/clients.h"
#include "../select/lookup.h"

/* Verdicts of a program at a system call. */
#define SYSCALL_DENY 0
#define SYSCALL_ALLOW 1

#define ECONNREFUSED 111

/* deny_call makes the system call fail: as if nothing listened there, or, where the kernel does not let a program say
 * so, with EPERM. */
static __always_inline int deny_call(enum local_event reason)
{
	count_event(reason);
	if (local.errors && reason != LOCAL_REFUSED_DENIED)
		bpf_set_retval(-ECONNREFUSED);
	return SYSCALL_DENY;
}

/* event_of returns the event of a failed selection. */
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

/* store_client_affinity stores the affinity of a client, for its next flow. A client on this host needs no proof: its
 * address is not spoofed. Scratch: reads tracking.flow, and what find_affinity() writes. */
static __always_inline void store_client_affinity(void *generation, const struct service *service,
						  struct tracking *tracking, __u64 selection)
{
	struct backend *backend = backend_at(generation, (__u32)selection);

	if (!backend)
		return;
	tracking->flow.backend = backend->index;
	tracking->flow.generation = backend->generation;
	store_affinity();
	prove_affinity(service);
}

/* select_for_client selects a backend for a service whose selection depends on the client: persistence, or lists of
 * clients. */
static __always_inline __u64 select_for_client(void *generation, const struct service *service,
					       const struct packet *packet)
{
	struct scratch *scratch = acquire_scratch();
	__u64 selection;

	if (!scratch)
		return fail_with(OUTCOME_DROPPED_NO_BACKEND);
	if (is_denied(service, packet, packet->ipv6)) {
		selection = fail_with(OUTCOME_DROPPED_DENIED);
	} else {
		flow_of(&scratch->tracking.flow, packet, service->id);
		selection = pick_for_new_flow(service, service_hash(service, packet));
		if ((service->flags & SERVICE_PERSISTENT) &&
		    !(selection & (SELECTION_FAILED | SELECTION_NONE)))
			store_client_affinity(generation, service, &scratch->tracking, selection);
	}
	release_scratch();
	return selection;
}

/* select_backend selects the backend of a new flow. */
static __always_inline __u64 select_backend(void *generation, const struct service *service,
					    const struct packet *packet)
{
	__u64 selection;

	if ((service->flags & SERVICE_PERSISTENT) || has_lists(service))
		selection = select_for_client(generation, service, packet);
	else
		selection = pick_for_new_flow(service, service_hash(service, packet));
	return selection == SELECTION_NONE ? fail_with(OUTCOME_DROPPED_NO_BACKEND) : selection;
}

/* write_peer writes a socket's backend for a packet's destination, except its state. */
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

/* store_socket creates the entry of a socket, with its first peer; false if the map is full, or another thread has
 * created the entry. Most sockets need only this peer: they connect, send a request and close. It is not inlined:
 * together with the selection it would not fit the stack. */
static __noinline bool store_socket(struct bpf_sock_addr *ctx, const struct service *service,
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

/* store_peer stores the backend that was selected for a socket and a packet's destination, in the socket's entry, which
 * may exist already; false where there is no room. */
static __always_inline bool store_peer(struct bpf_sock_addr *ctx, void *generation,
				       struct local_socket *socket,
				       const struct service *service,
				       const struct backend *backend,
				       const struct packet *packet, enum peer_state state)
{
	__u32 now = clock_of(generation);
	struct local_peer *peer;

	if (!socket) {
		if (store_socket(ctx, service, backend, packet, state))
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

/* assign_backend selects a backend for a socket and the packet's destination, which is of a service, and rewrites the
 * socket's peer address. */
static __always_inline int assign_backend(struct bpf_sock_addr *ctx, bool ipv6, void *generation,
					  struct local_socket *socket, const struct service *service,
					  const struct packet *packet, enum peer_state state)
{
	__u64 selection = select_backend(generation, service, packet);
	struct backend_count *count;
	struct backend *backend;
	__u32 index;

	if (selection & SELECTION_FAILED)
		return deny_call(event_of(failed_outcome(selection)));
	backend = backend_at(generation, (__u32)selection);
	/* A socket does not change its family; the control plane ensures that it need not. */
	if (!backend || !backend->ipv6 != !packet->ipv6)
		return deny_call(LOCAL_REFUSED_NO_BACKEND);
	if (!store_peer(ctx, generation, socket, service, backend, packet, state)) {
		if (service->flags & SERVICE_LIMITED)
			return deny_call(LOCAL_REFUSED_NO_ROOM);
		count_event(LOCAL_UNREMEMBERED);
	}
	count_event(LOCAL_SERVED);
	index = backend->index;
	count = bpf_map_lookup_elem(&backend_counts, &index);
	/* A datagram may arrive in between. */
	if (count)
		__sync_fetch_and_add(&count->connections, 1);
	write_peer_address(ctx, ipv6, packet->ipv6, backend->address, backend->port);
	return SYSCALL_ALLOW;
}

/* find_socket_service looks up the service of a socket's peer address; NULL where the call proceeds unchanged. */
static __always_inline struct service *find_socket_service(struct bpf_sock_addr *ctx, void *generation,
							   struct packet *packet)
{
	struct service *service;

	if (head_of(generation)->orphaned)
		return NULL;
	service = find_service(generation, packet, packet->destination_port, packet->protocol);
	return service && read_local_address(ctx, packet) ? service : NULL;
}

/* on_connect handles a socket that is about to be connected. */
static __always_inline int on_connect(struct bpf_sock_addr *ctx, bool ipv6)
{
	void *generation = current_generation();
	struct local_socket *socket;
	struct service *service;
	struct packet packet;

	if (!is_ours(ctx))
		return SYSCALL_ALLOW;
	/* The socket may have been connected before. */
	socket = socket_of(bpf_get_socket_cookie(ctx));
	if (socket)
		retire_connected(socket);
	read_peer_address(ctx, ipv6, &packet);
	service = find_socket_service(ctx, generation, &packet);
	if (!service)
		return SYSCALL_ALLOW;
	if (packet.protocol == IPPROTO_TCP)
		packet.tcp_flags = TCP_SYN;
	return assign_backend(ctx, ipv6, generation, socket, service, &packet, PEER_CONNECTED);
}

/* send_to_current sends a datagram to the backend of the socket's last one for the VIP; false if there was none, or the
 * backend is down. */
static __always_inline bool send_to_current(struct bpf_sock_addr *ctx, bool ipv6, void *generation,
					    struct local_socket *socket, const struct packet *packet)
{
	struct local_peer copy, *peer = find_current(socket, packet, &copy);

	if (!peer)
		return false;
	if (!is_backend_up(generation, &copy)) {
		retire(peer, copy.state);
		count_event(LOCAL_MOVED);
		return false;
	}
	if (peer->seen != clock_of(generation))
		peer->seen = clock_of(generation);
	write_peer_address(ctx, ipv6, packet->ipv6, copy.address, copy.port);
	return true;
}

/* on_sendmsg handles a socket that is about to send a datagram to an explicit destination. */
static __always_inline int on_sendmsg(struct bpf_sock_addr *ctx, bool ipv6)
{
	void *generation = current_generation();
	struct local_socket *socket;
	struct service *service;
	struct packet packet;

	if (!is_ours(ctx))
		return SYSCALL_ALLOW;
	read_peer_address(ctx, ipv6, &packet);
	service = find_socket_service(ctx, generation, &packet);
	if (!service)
		return SYSCALL_ALLOW;
	socket = socket_of(bpf_get_socket_cookie(ctx));
	if (socket && send_to_current(ctx, ipv6, generation, socket, &packet))
		return SYSCALL_ALLOW;
	return assign_backend(ctx, ipv6, generation, socket, service, &packet, PEER_SENT);
}

/* show_vip returns the VIP to an application, by recvmsg(2) and getpeername(2), in place of the backend's address. */
static __always_inline int show_vip(struct bpf_sock_addr *ctx, bool ipv6, bool connected)
{
	struct local_socket *socket;
	struct packet packet;

	if (!is_ours(ctx))
		return SYSCALL_ALLOW;
	socket = socket_of(bpf_get_socket_cookie(ctx));
	if (!socket)
		return SYSCALL_ALLOW;
	read_peer_address(ctx, ipv6, &packet);
	if (find_vip(socket, &packet, connected))
		write_peer_address(ctx, ipv6, packet.ipv6, packet.destination, packet.destination_port);
	return SYSCALL_ALLOW;
}
