/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The verdicts on packets. */
#pragma once

#include <linux/types.h>

/* outcome is the verdict on a packet, with its reason. Each packet has exactly one. Users read the names without the
 * prefix. */
enum outcome {
	/* Sent on to a backend. */
	OUTCOME_FORWARDED,
	/* A backend's reply, sent on to its client. */
	OUTCOME_RETURNED,
	/* An ICMP error reports to its sender that it is too big. */
	OUTCOME_ANSWERED_TOO_BIG,
	/* An ICMP error reports to its sender that its TTL expired. */
	OUTCOME_ANSWERED_TIME_EXCEEDED,
	/* Could not be forwarded and was answered, as its service is configured: by a TCP reset, or, UDP, by an ICMP error
	 * "port unreachable". Unanswered, the same packets end as OUTCOME_DROPPED_NO_BACKEND and the outcomes after it, in
	 * this order. */
	OUTCOME_RESET_NO_BACKEND,
	OUTCOME_RESET_BACKEND_DOWN,
	OUTCOME_RESET_NO_FLOW,
	OUTCOME_RESET_NO_PORT,
	OUTCOME_RESET_NO_ADDRESS,
	OUTCOME_RESET_FLOW_TABLE_FULL,
	OUTCOME_RESET_RATE_LIMIT,
	OUTCOME_RESET_CONNECTION_LIMIT,
	OUTCOME_UNREACHABLE_NO_BACKEND,
	OUTCOME_UNREACHABLE_BACKEND_DOWN,
	OUTCOME_UNREACHABLE_NO_FLOW,
	OUTCOME_UNREACHABLE_NO_PORT,
	OUTCOME_UNREACHABLE_NO_ADDRESS,
	OUTCOME_UNREACHABLE_FLOW_TABLE_FULL,
	OUTCOME_UNREACHABLE_RATE_LIMIT,
	OUTCOME_UNREACHABLE_CONNECTION_LIMIT,
	/* Left to the kernel's own stack. */
	OUTCOME_PASSED_OTHER_HOST,
	OUTCOME_PASSED_NOT_IP,
	OUTCOME_PASSED_NO_SERVICE,
	/* Unchanged: from a backend's endpoint of mode nat, to this host itself or without a route, so not a reply of the
	 * service. */
	OUTCOME_PASSED_NOT_FORWARDED,
	/* Unchanged: from a backend's endpoint of mode nat, to a destination that by the configuration is not a client of
	 * the service. */
	OUTCOME_PASSED_UNTRANSLATED,
	/* Unchanged: from a backend's endpoint of mode nat, whose service tracks every flow, but part of no flow. */
	OUTCOME_PASSED_NO_FLOW,
	/* For a VIP, after the control plane's clock has stopped for longer than permitted: struct head, `orphaned`. */
	OUTCOME_PASSED_ORPHANED,
	/* For a VIP that another balancer holds: `standby`. */
	OUTCOME_PASSED_BACKUP,
	/* A reply, rewritten, which the kernel routes. */
	OUTCOME_PASSED_TO_ROUTE,
	/* Lost, for the reason in the name. */
	OUTCOME_DROPPED_MALFORMED,
	OUTCOME_DROPPED_FRAGMENT,
	OUTCOME_DROPPED_EXTENSION_HEADERS,
	OUTCOME_DROPPED_TOO_BIG,
	OUTCOME_DROPPED_TIME_EXCEEDED,
	OUTCOME_DROPPED_NO_ROUTE,
	OUTCOME_DROPPED_NO_ROOM,
	/* Its flow is not known, or has ended, while flows are moved: struct head, `moving`. */
	OUTCOME_DROPPED_FLOWS_MOVING,
	/* From a client that its service's lists deny. */
	OUTCOME_DROPPED_DENIED,
	/* From here on: packets that a service may have answered instead. */
	OUTCOME_DROPPED_NO_BACKEND,
	OUTCOME_DROPPED_BACKEND_DOWN,
	OUTCOME_DROPPED_NO_FLOW,
	OUTCOME_DROPPED_NO_PORT,
	/* From a client that the backend would reply to directly, and the balancer has no address to source-NAT it to. */
	OUTCOME_DROPPED_NO_ADDRESS,
	OUTCOME_DROPPED_FLOW_TABLE_FULL,
	/* A new flow that a limit of its service or of all backends refuses. */
	OUTCOME_DROPPED_RATE_LIMIT,
	OUTCOME_DROPPED_CONNECTION_LIMIT,
	OUTCOME_COUNT,
	/* No verdict yet: the packet continues to the next step. */
	OUTCOME_NONE,
	/* No verdicts either: the sender is to get an ICMP error "too big" or "time exceeded". */
	OUTCOME_TOO_BIG,
	OUTCOME_TIME_EXCEEDED,
};
