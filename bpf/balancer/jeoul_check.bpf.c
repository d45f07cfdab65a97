// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Sends the packets of health checks, on the interface at which they leave the network namespace of their sockets. */
#include "../lib/ctx_tc.h"

/* The headers that send a packet to a backend have more functions than checks need. */
#pragma clang diagnostic ignored "-Wunused-function"

#include "check/send.h"

SEC(CTX_SECTION)
int jeoul_check(ctx_t *ctx)
{
	return send_check(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
