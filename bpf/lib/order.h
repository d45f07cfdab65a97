/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Order between reads and writes of memory that several CPUs share without a lock, where the processor does not
 * guarantee it. docs/internals/memory-order.md lists each such pair. `weak` is a constant of the loaded program, false
 * on amd64: there this adds no instruction. Loads with acquire semantics would do as well, but need Linux 6.15. */
#pragma once

#include <stdbool.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* READ_AFTER returns a pointer, or an index of 64 bits, whose memory is read after the word: its address depends on the
 * word (LKMM, "address dependency", in the kernel's tools/memory-model/Documentation/explanation.txt). A comparison of
 * the word orders no read after it. The word is read once more, which never returns an older value than before. */
#define READ_AFTER(weak, pointer, word)                                                     \
	({                                                                                  \
		typeof(pointer) read_after_ = (pointer);                                    \
                                                                                            \
		if (weak) {                                                                 \
			__u64 known_ = *(const volatile typeof(*(word)) *)(word);           \
                                                                                            \
			asm volatile("%1 &= 0\n\t%0 += %1" : "+r"(read_after_), "+r"(known_)); \
		}                                                                           \
		read_after_;                                                                \
	})

/* order_all is a full barrier: it orders all reads and writes before it ahead of all after it. Before Linux 6.15, the
 * only such instruction of a program is an atomic one that returns a value (LKMM; on arm64 LDADDAL, or a loop of
 * exclusives with a barrier). */
static __always_inline void order_all(bool weak)
{
	__u64 word = 0;

	if (weak) {
		__u64 old = __sync_fetch_and_add(&word, 1);

		/* Without a use of the result, the compiler would emit the instruction that returns no value, which orders
		 * nothing. */
		asm volatile("" : : "r"(old) : "memory");
	}
}
