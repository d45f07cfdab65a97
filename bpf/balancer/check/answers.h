/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What answers to health checks become. */
#pragma once

#include <bpf/bpf_helpers.h>

#include "types.h"

const enum check_agreement *unused_check_agreement __attribute__((unused));
const struct check_target *unused_check_target __attribute__((unused));

/* check_answers is written by jeoul_check. It is the control plane's, which puts one of the
 * right size in its place; an entry that was evicted comes again with the next packet of its
 * check. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 15);
	__type(key, struct check_key);
	__type(value, struct check_answer);
} check_answers SEC(".maps");
