/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Functions that both kinds of context have in common. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "checksum.h"

/* To the compiler the fields have 32 bits; to the verifier they are pointers, which it rejects if they are truncated to
 * 32 bits: so the load is hidden from the compiler. */
#define CTX_POINTER(field)                                                          \
	({                                                                          \
		void *pointer;                                                      \
		asm volatile("%0 = *(u32 *)(%1 + %2)"                               \
			     : "=r"(pointer)                                        \
			     : "r"(ctx), "i"(offsetof(ctx_t, field)));              \
		pointer;                                                            \
	})
