// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A dispatcher by libxdp's protocol (xdp-tools, lib/libxdp/protocol.org): several XDP programs on one
 * interface. It calls its slots in turn; each is replaced by one of those programs (freplace), and its
 * configuration, which is fixed at load, says after which of their actions the next one is called.
 *
 * The names xdp_dispatcher and prog0 to prog9, the map's layout and its values are the protocol's: libxdp recognises a
 * dispatcher by them, and can work with this one. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifndef DISPATCHER_VERSION
#define DISPATCHER_VERSION 3
#endif

enum {
	SLOTS = 10,
	/* The action of a slot whose function is not, or no longer, replaced by a program: the next slot is called, because
	 * each slot's actions have the bit of this action. */
	EMPTY_SLOT = 31,
};

struct dispatcher_config {
	__u8 magic;
	__u8 version;
	__u8 programs;
	/* The dispatcher takes frames in several pieces, as all of its programs do. */
	__u8 frags;
	/* A bit for each action of a slot's program after which the next is called. */
	__u32 actions[SLOTS];
	__u32 priorities[SLOTS];
	/* BPF_F_XDP_HAS_FRAGS, where a slot's program was made with it. */
	__u32 flags[SLOTS];
#if DISPATCHER_VERSION >= 3
	__u8 device_bound;
#endif
};

/* Volatile, because the compiler sees only zeroes; constant, so that the verifier, which knows the values at load,
 * removes the calls of empty slots. */
static volatile const struct dispatcher_config config = {};

/* The value is volatile, so that the compiler does not propagate it into the caller. The call of a helper that may move
 * the packet marks the slot as one that may: since Linux 6.13 only such a function can be replaced by a program that
 * moves the packet. */
#define SLOT(number)                                            \
	__attribute__((noinline)) int prog##number(struct xdp_md *ctx) \
	{                                                       \
		volatile int action = EMPTY_SLOT;               \
                                                                \
		if (!ctx)                                       \
			return XDP_ABORTED;                     \
		bpf_xdp_adjust_tail(ctx, 0);                    \
		return action;                                  \
	}

SLOT(0)
SLOT(1)
SLOT(2)
SLOT(3)
SLOT(4)
SLOT(5)
SLOT(6)
SLOT(7)
SLOT(8)
SLOT(9)

#define CALL(number)                                        \
	do {                                                \
		if (config.programs <= number)              \
			return XDP_PASS;                    \
		action = prog##number(ctx);                 \
		if (!(config.actions[number] & 1U << action)) \
			return action;                      \
	} while (0)

SEC("xdp")
int xdp_dispatcher(struct xdp_md *ctx)
{
	int action;

	CALL(0);
	CALL(1);
	CALL(2);
	CALL(3);
	CALL(4);
	CALL(5);
	CALL(6);
	CALL(7);
	CALL(8);
	CALL(9);
	return XDP_PASS;
}

/* jeoul_pass is in a slot while the balancer's program is attached or detached. */
SEC("xdp")
int jeoul_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
