/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is written into a packet on its way out. */
#pragma once

#include "parse.h"

/* forward_l2dsr readdresses the frame to the backend. The IP packet stays as
 * the client sent it, so that the backend answers as the VIP, and directly. */
static __always_inline void forward_l2dsr(struct packet *packet, const struct backend *backend)
{
	__builtin_memcpy(packet->eth->h_source, packet->eth->h_dest, ETH_ALEN);
	__builtin_memcpy(packet->eth->h_dest, backend->mac, ETH_ALEN);
}
