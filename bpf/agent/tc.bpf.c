// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The agent on a backend. Its ingress program decapsulates the balancer's tunnels, or restores the VIP by the DSCP, so
 * that the kernel gets the client's packet to the VIP. Its egress program clamps the MSS of SYN-ACKs to clients, by the
 * length of the tunnel headers. */
#include <stddef.h>

#include "../lib/ctx_tc.h"

#include "mss.h"
#include "restore.h"
#include "decap.h"

/* agent_ingress_ip handles a packet of one family, and returns the outcome. */
static __always_inline enum agent_outcome agent_ingress_ip(ctx_t *ctx, bool ipv6,
							   enum agent_mode *mode)
{
	enum agent_outcome outcome;
	struct agent_address vip;
	struct agent_ip ip;

	outcome = agent_read(ctx, ipv6, &ip);
	if (outcome != AGENT_NONE)
		return outcome;
	*mode = agent_tunnel(ctx, &ip);
	outcome = AGENT_PASSED_PLAIN;
	if (*mode != AGENT_MODE_PLAIN)
		outcome = agent_decap(ctx, &ip, *mode, ipv6);
	/* A service of mode dscp may have the port of GUE. */
	if ((*mode == AGENT_MODE_PLAIN || *mode == AGENT_MODE_GUE) &&
	    outcome >= AGENT_PASSED_PLAIN && outcome <= AGENT_PASSED_MALFORMED &&
	    agent_dscp_vip(&ip, ipv6, &vip)) {
		enum agent_outcome restored = agent_restore(ctx, &ip, ipv6, &vip);

		if (restored != AGENT_PASSED_PLAIN) {
			*mode = AGENT_MODE_DSCP;
			return restored;
		}
	}
	return outcome;
}

static __always_inline enum agent_outcome agent_ingress(ctx_t *ctx, enum agent_mode *mode)
{
	/* The kernel drops frames for another MAC address (PACKET_OTHERHOST). */
	if (ctx->pkt_type != 0)
		return AGENT_PASSED_OTHER_HOST;
	/* A VLAN tag is beside the frame here, not in it; a second one is in it. */
	if (ctx->protocol == bpf_htons(ETH_P_IP))
		return agent_ingress_ip(ctx, false, mode);
	if (ctx->protocol == bpf_htons(ETH_P_IPV6))
		return agent_ingress_ip(ctx, true, mode);
	return AGENT_PASSED_NOT_IP;
}

SEC(CTX_SECTION)
int jeoul_agent(ctx_t *ctx)
{
	enum agent_mode mode = AGENT_MODE_PLAIN;
	__u64 packets = ctx_packets(ctx);
	enum agent_outcome outcome = agent_ingress(ctx, &mode);

	agent_count(mode, outcome, packets);
	return outcome >= AGENT_DROPPED_MALFORMED ? CTX_DROP : CTX_PASS;
}

/* Packets that are not clamped are not counted: they are none of the agent's. */
SEC(CTX_SECTION)
int jeoul_agent_mss(ctx_t *ctx)
{
	enum agent_outcome outcome = AGENT_NONE;

	if (ctx->protocol == bpf_htons(ETH_P_IP))
		outcome = agent_clamp(ctx, false);
	else if (ctx->protocol == bpf_htons(ETH_P_IPV6))
		outcome = agent_clamp(ctx, true);
	if (outcome == AGENT_NONE)
		return CTX_PASS;
	agent_count(AGENT_MODE_PLAIN, outcome, ctx_packets(ctx));
	return outcome == AGENT_CLAMPED ? CTX_PASS : CTX_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
