/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Backends that refuse connections. A refused flow has ended, and a backend whose server is down would always have the
 * fewest: so each refusal adds a penalty for a while. The penalty is a number of flows that the schedulers count in
 * addition. It doubles with each refusal, halves with each established connection and with each second, and for
 * REFUSAL_LASTS it does not fall below the number that puts the backend level with the best of the others. The control
 * plane does the part that depends on time (refusal.go). */
#pragma once

#include "load.h"

/* note_refusal updates the penalty when a backend has refused a flow of a service. The penalty need not exceed the
 * largest number of flows that any other member can have for its weight, however many refusals are under way. */
static __always_inline void note_refusal(__u32 id, __u32 index)
{
	struct head *head = current_generation();
	struct backend *backend = backend_at(head, index);
	struct backend_load *load = load_of(index);
	struct turn *turn = turn_of(id);

	if (!backend || !load || !turn)
		return;
	load->quiet = 0;
	if (load->penalty <= (turn->active + 1ULL) * backend->weight &&
	    load->penalty < REFUSAL_MOST)
		load->penalty = load->penalty ? load->penalty * 2 : 1;
	/* The control plane reads the penalties when this is set: refusal.go. */
	order_all(is_weak());
	head->refused = 1;
}

/* note_answer updates the penalty when a connection to a backend is established. */
static __always_inline void note_answer(__u32 id, __u32 index)
{
	struct backend_load *load = load_of(index);

	if (!load || !load->penalty)
		return;
	load->penalty /= 2;
	load->quiet = REFUSAL_LASTS;
	note_fewer(turn_of(id), effective_load(load));
}
