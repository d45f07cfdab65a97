/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets of health checks. Sockets of the control plane, in a network namespace of their own, connect to the VIP of a
 * service, each to reach one backend. A veth pair joins that namespace to the balancer's: jeoul_mark writes into a
 * frame that leaves the sockets' end which backend it is for, and jeoul_check sends it on from the other end as the
 * service's packets are sent. The translation of its answer is noted there, and applied where packets arrive that are
 * for no service (redirect.h). */
#pragma once

#include "../types.h"

/* check_agreement holds numbers of checks on which data plane and control plane must agree. */
enum check_agreement {
	/* Sockets of checks have a source port from here on: a packet with a lower destination port is no answer (RFC 6335
	 * section 6, the dynamic ports). */
	CHECK_FIRST_PORT = 49152,
	/* Where in a frame, in bytes, jeoul_mark writes the socket's mark. */
	CHECK_MARK_AT = 2,
};

/* check_target is a backend that is checked, by the mark of the sockets that check it. */
struct check_target {
	struct backend backend;
	/* The source of its packets: this host's address of the VIP's family. */
	__be32 source[4];
	/* service.mode and service.tos */
	__u8 mode;
	__u8 tos;
	__u8 pad[6];
};

/* check_key is the 5-tuple of an answer. */
struct check_key {
	__be32 source[4];
	__be32 destination[4];
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol;
	__u8 pad[3];
};

/* check_answer has the addresses that an answer gets, and the interface and MAC addresses by which it reaches its
 * socket. */
struct check_answer {
	__be32 source[4];
	__be32 destination[4];
	__u32 interface;
	/* See copy_macs. */
	__u8 macs[12];
};
