/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is written into a packet on its way out. */
#pragma once

#include "parse.h"

/* forward_l2dsr readdresses the frame to the backend. The IP packet stays as
 * the client sent it, so that the backend answers as the VIP, and directly. */
static __always_inline void forward_l2dsr(void *frame, const struct backend *backend)
{
	*(__u64 *)frame = *(__u64 *)backend->destination;
	*(__u32 *)(frame + 8) = *(__u32 *)((void *)backend + 8);
}
