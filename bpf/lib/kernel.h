/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's structures that programs read. Only the fields that are read are declared; their offsets are filled in
 * when a program is loaded (CO-RE). */
#pragma once

#include <linux/types.h>

#define KERNEL __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum;
} KERNEL;
struct net {
	struct ns_common ns;
} KERNEL;
typedef struct {
	struct net *net;
} KERNEL possible_net_t;
struct net_device {
	int ifindex;
	possible_net_t nd_net;
} KERNEL;
struct sock_common {
	possible_net_t skc_net;
} KERNEL;
struct sock {
	struct sock_common __sk_common;
} KERNEL;
/* ip_summed is the state of the transport checksum: CHECKSUM_*. */
struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned int len;
	__be16 protocol;
	__u16 network_header;
	unsigned char *head;
	unsigned char ip_summed : 2;
} KERNEL;
