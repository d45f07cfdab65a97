// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Aborts UDP sockets that are connected to a backend which is down. Datagrams of such a socket pass no program, so
 * another backend cannot be selected for it: the application gets an error instead, and reconnects. Run by a read of
 * the iterator over the UDP sockets of a network namespace. */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define KERNEL_TYPE __attribute__((preserve_access_index))

/* A declaration without a definition would not be matched with the kernel's type. */
struct sock_common {
	unsigned short skc_family;
} KERNEL_TYPE;

struct udp_sock;

struct bpf_iter__udp {
	struct udp_sock *udp_sk;
} KERNEL_TYPE;

typedef struct bpf_iter__udp ctx_t;
#define AT_SOCKETS

/* sockets.h has more functions than are called here. */
#pragma clang diagnostic ignored "-Wunused-function"

#include "sockets.h"

extern int bpf_sock_destroy(struct sock_common *sk) __attribute__((section(".ksyms")));

/* is_stranded reports whether a UDP socket is connected to a backend that is down. */
static __always_inline bool is_stranded(const struct local_peer *peer)
{
	return (peer_state(peer) & PEER_STATE) == PEER_CONNECTED && peer->protocol == IPPROTO_UDP &&
	       !is_backend_up(current_generation(), peer);
}

SEC("iter/udp")
int jeoul_abort(struct bpf_iter__udp *ctx)
{
	struct udp_sock *sk = ctx->udp_sk;
	struct local_socket *socket;

	if (!sk)
		return 0;
	socket = socket_of(bpf_get_socket_cookie(sk));
	if (!socket)
		return 0;
	for (int i = 0; i < LOCAL_PEERS; i++) {
		struct local_peer *peer = &socket->peers[i];

		if (!is_stranded(peer) || bpf_sock_destroy((struct sock_common *)sk))
			continue;
		retire(peer, peer_state(peer));
		count_event(LOCAL_ENDED);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
