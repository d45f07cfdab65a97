/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Backends as the senders of replies, and the tables in which they are found. */
#pragma once

#include <linux/types.h>

#include "service.h"

/* endpoint has the VIP and port that a reply's source is translated to (mode nat): those of the service whose backend
 * sends it. The tables of endpoints are made like those of the services, with the backend's address and port as the
 * key; port 0 and PROTOCOL_ANY are the wildcard entry of an address. */
struct endpoint {
	__be32 vip[4];
	__be16 port;
	/* service.mss */
	__u16 mss;
	/* The backend's index. */
	__u32 backend;
	/* service.id where its flows are tracked, or NO_SERVICE. */
	__u32 service;
	/* Which prefixes in `prefixes` are of hosts that are no clients of its service; 0: none.
	 * Below 2^24. */
	__u32 exceptions;
};

/* no_service is the id that no service has. */
enum no_service {
	NO_SERVICE = 0x7fffffff,
};

struct endpoint_slot4 {
	struct service_key4 key;
	struct endpoint endpoint;
	__u64 pad[3];
};

struct endpoint_slot6 {
	struct service_key6 key;
	struct endpoint endpoint;
	__u64 pad;
};
