/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What tracing programs read of the kernel's structures. Only the fields that are
 * read are here; where they are is filled in when a program is loaded. */
#pragma once

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
