// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The balancer in XDP. */
#include "../lib/ctx_xdp.h"

#include "run.h"

SEC(CTX_SECTION)
int jeoul_xdp(ctx_t *ctx)
{
	return run(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
