/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The generation: the configuration, in the memory that all packets read. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

/* generation is the whole configuration in one piece of memory: a head, the services' hash tables, their slots, and the
 * backends, one vector after the other. The offset and length of each are in `loaded`, which are constants to the
 * verifier when it bounds an index. It is a section of its own, so that its address is a constant of the program: no
 * packet needs a map lookup for it; a map for each vector would cost a call each, and with it the registers. The
 * control plane puts memory of the right size in its place when it loads the program. It changes it while packets read:
 * it writes a new value into memory that no packet reads, and then the one word that refers to it. */
extern char generation[];
/* To the compiler it has no end, which an array of a size would. */
asm(".pushsection .data.generation, \"aw\", @progbits\n\t"
    ".type generation, @object\n\t.globl generation\n\t.hidden generation\n\t"
    ".size generation, 8\n"
    "generation:\n\t.zero 8\n\t.popsection");

static __always_inline void *current_generation(void) { return generation; }

static __always_inline struct head *head_of(void *generation) { return generation; }
