/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers on which data plane and control plane must agree. */
#pragma once

#include <linux/types.h>

/* agreement holds numbers on which data plane and control plane must agree. */
enum agreement {
	/* Slots in which a service may be, from the slot of its hash on. */
	SERVICE_PROBES = 8,
	/* Interfaces that a balancer can have. */
	MAX_INTERFACES = 16,
	/* The bits of the sequence's length in the number before a table: see struct block. */
	SEQUENCE_BITS = 17,
	/* Reserved by IANA; 0 would make a key of zeros. */
	PROTOCOL_ANY = 255,
	/* A bit of the protocol in the key of a hairpin, whose service has the key without the bit: see SERVICE_HAIRPIN. */
	PROTOCOL_HAIRPIN = 128,
	/* Prefixes of near clients that an interface can have, in each family. */
	MAX_NEAR = 16,
	/* No address of the pool of full NAT has this number: it means backend.local. */
	POOL_LOCAL = 0xffff,
};
