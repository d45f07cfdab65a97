// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Serves clients on the balancer's own host: a socket gets a backend when it connects or sends, so that its packets
 * need no translation. */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

typedef struct bpf_sock_addr ctx_t;
#define AT_SOCKETS

/* The headers that select a backend have more functions than sockets need. */
#pragma clang diagnostic ignored "-Wunused-function"

#include "local/assign.h"

SEC("cgroup/connect4")
int jeoul_connect4(struct bpf_sock_addr *ctx)
{
	return on_connect(ctx, false);
}

SEC("cgroup/connect6")
int jeoul_connect6(struct bpf_sock_addr *ctx)
{
	return on_connect(ctx, true);
}

SEC("cgroup/sendmsg4")
int jeoul_sendmsg4(struct bpf_sock_addr *ctx)
{
	return on_sendmsg(ctx, false);
}

SEC("cgroup/sendmsg6")
int jeoul_sendmsg6(struct bpf_sock_addr *ctx)
{
	return on_sendmsg(ctx, true);
}

SEC("cgroup/recvmsg4")
int jeoul_recvmsg4(struct bpf_sock_addr *ctx)
{
	return show_vip(ctx, false, false);
}

SEC("cgroup/recvmsg6")
int jeoul_recvmsg6(struct bpf_sock_addr *ctx)
{
	return show_vip(ctx, true, false);
}

SEC("cgroup/getpeername4")
int jeoul_peername4(struct bpf_sock_addr *ctx)
{
	return show_vip(ctx, false, true);
}

SEC("cgroup/getpeername6")
int jeoul_peername6(struct bpf_sock_addr *ctx)
{
	return show_vip(ctx, true, true);
}

/* jeoul_release deletes the entry of a socket that is closed. */
SEC("cgroup/sock_release")
int jeoul_release(struct bpf_sock *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct local_socket *socket = socket_of(cookie);

	if (!socket)
		return SYSCALL_ALLOW;
	for (int i = 0; i < LOCAL_PEERS; i++)
		uncount(&socket->peers[i], count_of(&socket->peers[i]));
	bpf_map_delete_elem(&local_sockets, &cookie);
	return SYSCALL_ALLOW;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
