/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The link header of a frame that is sent. Include after a ctx_*.h header. */
#pragma once

#include "maps.h"
#include "parse.h"

/* A link header begins with the destination's MAC address and the source's. */
#define MACS_LENGTH 12

/* copy_macs writes the MAC addresses of a frame, its first 12 bytes; a struct backend begins with those of a frame to
 * it. */
static __always_inline void copy_macs(void *frame, const void *macs)
{
	*(__u64 *)frame = *(const __u64 *)macs;
	*(__u32 *)(frame + 8) = *(const __u32 *)(macs + 8);
}

/* tag_length is how much of a frame's front a tag takes. */
static __always_inline __u32 tag_length(const struct packet *packet)
{
	return CTX_TAGS ? packet->network - sizeof(struct ethhdr) : 0;
}

/* is_other_interface reports whether an egress interface is another than the ingress interface. 0 means the ingress
 * interface. */
static __always_inline bool is_other_interface(__u32 interface)
{
	return interface && interface != loaded.interface;
}

/* is_of_own_vlan reports whether a frame belongs to a VLAN interface that has a program of its own, which gets the
 * frame next, without the tag. */
static __always_inline bool is_of_own_vlan(const ctx_t *ctx)
{
	__u32 vlan;

	if (!loaded.vlans_count)
		return false;
	vlan = ctx_vlan(ctx);
#pragma unroll
	for (int i = 0; i < MAX_INTERFACES; i++)
		if (i < loaded.vlans_count && loaded.vlans[i] == vlan)
			return true;
	return false;
}

/* ingress_interface returns the interface on which the kernel routes a packet: the program's. For a bond, whose XDP
 * program runs at its member devices, the context has the member device, which does not forward. A program that is run
 * without being attached has no interface. */
static __always_inline __u32 ingress_interface(ctx_t *ctx)
{
	return loaded.interface ? loaded.interface : ctx_interface(ctx);
}

/* rewrite_macs writes a frame's MAC addresses. A VLAN tag is removed where the frame is sent to another link: it would
 * name another VLAN there. */
static __always_inline long rewrite_macs(ctx_t *ctx, const struct packet *packet, const void *macs,
					 __u32 interface)
{
	void *frame;

	if (is_other_interface(interface) && ctx_untag(ctx, tag_length(packet)))
		return -1;
	frame = ctx_data(ctx);
	if (frame + sizeof(struct ethhdr) > ctx_data_end(ctx))
		return -1;
	copy_macs(frame, macs);
	return 0;
}
