/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* State of the programs at this host's sockets. */
#pragma once

#include <linux/types.h>

/* local_agreement holds numbers on which these programs and the control plane must agree. */
enum local_agreement {
	/* Sockets of this host that have an entry at a time. */
	LOCAL_SOCKETS = 65536,
	/* Backends in such an entry: of a socket that sends to several VIPs, or whose backend has changed. */
	LOCAL_PEERS = 4,
	/* Threads that hold a struct scratch at the same time. */
	LOCAL_THREADS = 1024,
};

/* local_event is the outcome of a socket's call for a VIP. */
enum local_event {
	/* It got a backend. */
	LOCAL_SERVED,
	/* It got another backend, because its previous one is down. */
	LOCAL_MOVED,
	/* It was connected to a backend that is down, and was aborted. */
	LOCAL_ENDED,
	/* It got no backend, and the application an error. */
	LOCAL_REFUSED_NO_BACKEND,
	LOCAL_REFUSED_RATE_LIMIT,
	LOCAL_REFUSED_CONNECTION_LIMIT,
	/* Its service limits its connections, and the map of sockets is full. */
	LOCAL_REFUSED_NO_ROOM,
	LOCAL_REFUSED_DENIED,
	/* It got a backend, and the map of sockets is full: the application sees the backend's address. */
	LOCAL_UNREMEMBERED,
	LOCAL_EVENTS,
};

/* peer_state is the state of a place among a socket's backends. The upper bits of the word count changes. */
enum peer_state {
	PEER_FREE,
	/* A program is writing it. */
	PEER_BUSY,
	/* The socket is connected to it. */
	PEER_CONNECTED,
	/* The socket sends datagrams for the VIP to it. */
	PEER_SENT,
	/* The socket sent there before: datagrams that still come from it are shown as the VIP's. */
	PEER_PREVIOUS,
	/* Together with the word of the state in which the place was taken: the value of local_peer.counted. */
	PEER_COUNTED = 0x80,
	PEER_STATE = 0xff,
	PEER_CHANGE = 0x100,
};

/* local_peer is a backend of a socket. Addresses and ports are in network byte order; an IPv4 address is in the first
 * word. */
struct local_peer {
	__be32 vip[4];
	__be32 address[4];
	__be16 vip_port;
	__be16 port;
	/* service.id, backend.index, and backend.generation at that time. */
	__u32 service;
	__u32 backend;
	__u16 generation;
	__u8 ipv6;
	/* An IANA number. */
	__u8 protocol;
	/* It is counted among the flows of its backend and its service: a word that no other peer of this
	 * place has. 0: it is not. */
	__u32 counted;
	/* The time at which the socket last sent to it, in milliseconds of the clock of struct head. */
	__u32 seen;
	/* enum peer_state */
	__u32 state;
};

/* local_socket has the backends of a socket, by its cookie. */
struct local_socket {
	struct local_peer peers[LOCAL_PEERS];
};

/* local_settings are fixed when the programs are loaded. */
struct local_settings {
	/* The cookie of the sockets' network namespace. */
	__u64 netns;
	/* 1 where the kernel lets a program say which error a system call returns. */
	__u8 errors;
};
