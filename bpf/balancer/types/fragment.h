/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The outcomes of datagrams in fragments. */
#pragma once

#include <linux/types.h>

/* fragment_key names a datagram of which only the first fragment bears ports
 * (RFC 791 section 3.2, RFC 8200 section 4.5). */
struct fragment_key {
	__be32 source[4];
	__be32 destination[4];
	/* IPv4: 16 bits. */
	__be32 identification;
	/* 0 for IPv6. */
	__u8 protocol;
	__u8 pad[3];
};

/* fragment is the outcome of a datagram's first fragment, which the others share. */
struct fragment {
	__u64 seen;
	/* The addresses after translation, in the modes that translate them. */
	__be32 source[4];
	__be32 destination[4];
	__u32 backend;
	__u32 generation;
	/* enum outcome: forwarded, returned or passed. */
	__u8 outcome;
	/* enum mode, and the TOS of mode dscp. */
	__u8 mode;
	__u8 tos;
	__u8 pad;
	/* hash_flow() of the first. */
	__u32 hash;
};
