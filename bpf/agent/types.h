/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types that the agent's program and its Go side share. */
#pragma once

#include <linux/types.h>

/* agent_mode is the forwarding mode by which the balancer has sent a packet, of those that the agent reverses. */
enum agent_mode {
	/* None of those. */
	AGENT_MODE_PLAIN,
	AGENT_MODE_IPIP,
	AGENT_MODE_GUE,
	AGENT_MODE_DSCP,
	AGENT_MODE_COUNT,
};

/* agent_outcome is the verdict on a packet, with its reason. Each packet has exactly one; they are counted per mode.
 * Users read the names without the prefix. */
enum agent_outcome {
	/* Passed to the host's stack as a packet for a VIP. */
	AGENT_ACCEPTED,
	/* At the egress: a SYN whose MSS option was clamped. */
	AGENT_CLAMPED,
	/* Left to the host's stack as it came. */
	AGENT_PASSED_OTHER_HOST,
	AGENT_PASSED_NOT_IP,
	AGENT_PASSED_PLAIN,
	AGENT_PASSED_NOT_LOCAL,
	AGENT_PASSED_NOT_VIP,
	AGENT_PASSED_FRAGMENT,
	AGENT_PASSED_EXTENSION_HEADERS,
	AGENT_PASSED_OTHER_GUE,
	AGENT_PASSED_MALFORMED,
	/* Lost, for the reason in the name. */
	AGENT_DROPPED_MALFORMED,
	AGENT_DROPPED_CONGESTED,
	AGENT_DROPPED_AGGREGATE,
	AGENT_DROPPED_NO_ROOM,
	AGENT_OUTCOME_COUNT,
	/* No verdict yet: the packet continues to the next step. */
	AGENT_NONE,
};

/* agent_role is a set of bits: an address is one of the host's own, or a VIP. */
enum agent_role {
	AGENT_ROLE_OWN = 1,
	AGENT_ROLE_VIP = 2,
};

/* agent_address is in network byte order; IPv4 as ::ffff:a.b.c.d. */
struct agent_address {
	__be32 word[4];
};

#define AGENT_CODE_POINTS 64

/* agent_settings are fixed when the program is loaded. */
struct agent_settings {
	/* 1 << enum agent_mode for each mode that is reversed. */
	__u32 modes;
	/* The most that the MSS option of a SYN from a VIP may say, in bytes. */
	__u32 mss;
	/* The VIP of each code point; 0 where there is none. */
	__be32 dscp_vip4[AGENT_CODE_POINTS];
	struct agent_address dscp_vip6[AGENT_CODE_POINTS];
};
