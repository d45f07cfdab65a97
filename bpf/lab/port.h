/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The port of the laboratory's switch that a frame's destination is connected to.
 *
 * A switch must cost less than the measured balancers. So its table has no hash: the laboratory's MAC addresses are
 * numbered, and an address is the place of its port. */
#pragma once

#include <linux/types.h>

/* Places for ports: six roles with room for 256 hosts each. */
#define LAB_PORTS 1536

/* The bits that the MAC addresses of all hosts have in common, as the first six bytes of a word lie in memory: a mask,
 * and the bits' values. The others are the role, in the fourth byte, and the number, in the sixth. */
volatile const __u64 common_bits, common_values;

/* lab_place returns the place of a frame's port, or LAB_PORTS where the frame is for
 * no port whose address is numbered. */
static __always_inline __u32 lab_place(const void *data, const void *data_end)
{
	__u64 mac;

	/* A word of the frame; of its last two bytes nothing is used. */
	if (data + sizeof(mac) > data_end)
		return LAB_PORTS;
	mac = *(const __u64 *)data;
	if ((mac & common_bits) != common_values)
		return LAB_PORTS;
	return (mac >> 24 & 0xff) << 8 | (mac >> 40 & 0xff);
}
