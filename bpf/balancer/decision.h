/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The decision about a packet, which the steps of its path complete. */
#pragma once

#include "trace.h"
#include "types.h"
#include "hash.h"

/* decision is the backend of a packet, and how the packet is forwarded to it. */
struct decision {
	struct service *service;
	struct backend *backend;
	/* hash_flow() of its flow. */
	__u32 hash;
	/* The egress interface, 0 for the ingress interface. */
	__u32 egress;
	__u16 mss;
	/* enum mode */
	__u8 mode;
	__u8 tos;
	/* The packet opens a connection: a SYN, or, where flows are tracked, the first of a UDP flow. */
	bool opens;
};

/* init_decision initialises the decision about a packet of a service. */
static __always_inline void init_decision(struct service *service, const struct packet *packet,
					  struct decision *decision)
{
	trace_service(service);
	decision->service = service;
	decision->mode = service->mode;
	decision->tos = service->tos;
	decision->mss = service->mss;
	decision->hash = hash_flow(packet);
}
