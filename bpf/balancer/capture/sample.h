/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The samples of captures. */
#pragma once

#include "maps.h"

/* A bit of trace_notes.drawn beside those of the slots: the samples are drawn. */
#define CAPTURE_DRAWN (1U << 31)

/* capture_random returns a random number from 1 to max, or to 2^32 - 1 if that is less. */
static __always_inline __u64 capture_random(__u64 max)
{
	if (max > 0xffffffff)
		max = 0xffffffff;
	return 1 + (bpf_get_prandom_u32() * max >> 32);
}

/* capture_draw draws whether a packet is one of the filter's sample. Each CPU counts its packets for the filter down to
 * the next one of the sample; the distances are random, and their mean is the filter's. A random number for each packet
 * would cost as much as all other conditions. */
static __always_inline bool capture_draw(struct trace_notes *notes,
					 const struct capture_filter *filter, __u32 slot)
{
	__u64 sample = filter->sample, *distance = &notes->left[slot & (CAPTURES_MAX - 1)];

	if (sample <= 1)
		return true;
	/* The slot's previous filter may have left a larger distance. */
	if (!*distance || *distance >= 2 * sample)
		*distance = capture_random(sample);
	if (--*distance)
		return false;
	*distance = capture_random(2 * sample - 1);
	return true;
}
