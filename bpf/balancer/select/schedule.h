/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The schedulers: which backend a new flow gets. */
#pragma once

#include "../flow/flowtable.h"
#include "../flow/load.h"
#include "../maps.h"
#include "../trace.h"

/* Members that the least-connections schedulers compare for a flow, and those that are tried when the picked one is
 * full. */
#define LEAST_WINDOW 32
#define SPARE_WINDOW 64

/* No member has this number. */
#define NO_MEMBER 0xffffffff

/* read_block reads a block in one load. */
static __always_inline __u64 read_block(const struct block *block)
{
	return *(const volatile __u64 *)block;
}

static __always_inline __u32 table_of(__u64 block)
{
	return (__u32)block;
}

static __always_inline __u32 members_of(__u64 block)
{
	return block >> 32;
}

/* counts_before returns the number before a table: see struct block. */
static __always_inline __u32 counts_before(void *generation, __u32 table)
{
	__u16 *low = slot_at(generation, (__u64)table - 2), *high = slot_at(generation, (__u64)table - 1);

	return low && high ? *low | (__u32)*high << 16 : 0;
}

/* best is the member with the fewest flows for its weight, of those compared so far. */
struct best {
	__u64 flows;
	__u64 weight;
	__u64 member;
};

/* Before any member was compared: of weight 0, so that any member is better. */
#define NO_BEST { .flows = 1, .member = NO_MEMBER }

/* compare_load compares a member with the best one: (flows + 1) / weight, multiplied out. Without a branch: which of
 * many members is the best so far cannot be predicted. */
static __always_inline void compare_load(void *generation, __u32 members, __u32 member,
					 struct best *best)
{
	struct backend *row = member_at(generation, (__u64)members + member);
	struct backend_load *load;
	__u64 flows, better;

	if (!row)
		return;
	load = load_of(row->index);
	if (!load || is_full(load))
		return;
	flows = effective_load(load) + 1;
	/* All ones, or 0: the products are below 2^50. */
	better = (__s64)(flows * best->weight - best->flows * row->weight) >> 63;
	barrier_var(better);
	best->flows ^= (best->flows ^ flows) & better;
	best->weight ^= (best->weight ^ row->weight) & better;
	best->member ^= (best->member ^ member) & better;
}

/* COMPARED_AT_ONCE is how many members one call of compare_some() compares. */
#define COMPARED_AT_ONCE 8

/* compare_some compares up to COMPARED_AT_ONCE members from `first` on, and wraps around at the last. It is verified
 * once: a loop over all compared members would be verified for each branch of the rounds before, a fifth of all
 * verified instructions. */
__noinline int compare_some(__u32 members, __u32 count, __u32 first, __u32 remaining, struct best *best)
{
	void *generation = current_generation();

	if (!best)
		return 0;
	for (__u32 i = 0; i < COMPARED_AT_ONCE; i++) {
		__u32 member = first + i;

		if (i >= remaining)
			break;
		if (member >= count)
			member -= count;
		compare_load(generation, members, member, best);
	}
	return 0;
}

/* least_loaded compares `window` members from `start` on, the first of which wins a tie. */
__noinline __u32 least_loaded(__u32 members, __u32 count, __u32 start, __u32 window)
{
	struct best best = NO_BEST;

	if (window > count)
		window = count;
	for (__u32 i = 0; i < SPARE_WINDOW; i += COMPARED_AT_ONCE) {
		if (i >= window)
			break;
		compare_some(members, count, start + i, window - i, &best);
	}
	return best.member;
}

/* pick has the inputs for picking a member. */
struct pick {
	__u64 turn;
	__u32 table;
	__u32 members;
	/* How many members there are, and how long their sequence is. */
	__u32 count;
	__u32 length;
	__u32 hash;
};

static __always_inline __u32 member_in(void *generation, __u32 table, __u32 slot)
{
	__u16 *found = slot_at(generation, (__u64)table + slot);

	return found ? *found & SLOT_MEMBER : NO_MEMBER;
}

static __always_inline __u32 pick_round_robin(void *generation, const struct pick *pick)
{
	__u16 *member;
	__u32 at;

	if (!pick->length)
		return NO_MEMBER;
	at = pick->turn % pick->length;
	member = slot_at(generation, (__u64)pick->table - 2 - pick->length + at);
	return member ? *member & SLOT_MEMBER : NO_MEMBER;
}

/* first_compared returns the first member that the least-connections schedulers compare: if there are more than they
 * compare, the next flow compares the next ones. */
static __always_inline __u32 first_compared(const struct pick *pick)
{
	__u64 step = pick->count <= LEAST_WINDOW ? 1 : LEAST_WINDOW;

	return pick->turn * step % pick->count;
}

static __always_inline __u32 pick_weighted_least_conn(const struct pick *pick)
{
	return least_loaded(pick->members, pick->count, first_compared(pick), LEAST_WINDOW);
}

/* A rank is a member's number of flows, and in the low byte its position among the compared members: the lowest rank is
 * that of the first member with the fewest flows. */
#define RANK_NONE (1ULL << 62)

/* rank_of writes a member's rank; positions beyond the last member wrap around. False if there is no such member, which
 * cannot happen. */
static __always_inline bool rank_of(void *generation, const struct pick *pick, __u64 start,
				    __u64 position, __u64 *rank)
{
	__s64 beyond = start + position - pick->count;
	struct backend_load *load;
	struct backend *row;

	row = member_at(generation, (__u64)pick->members + beyond + (pick->count & beyond >> 63));
	if (!row)
		return false;
	load = load_of(row->index);
	if (!load)
		return false;
	*rank = effective_load(load) << 8 | position;
	return true;
}

/* lower_rank returns the lower of two ranks, without an unpredictable branch. */
static __always_inline __u64 lower_rank(__u64 a, __u64 b)
{
	__s64 less = a - b, mask = less >> 63;

	barrier_var(mask);
	return b + (less & mask);
}

/* known_fewest returns an upper bound of the ranks of the members with the fewest flows, or 0 if that is not known. */
static __always_inline __u64 known_fewest(const struct turn *turn, const struct pick *pick)
{
	return turn && turn->fewest_table == pick->table ? (turn->fewest + 1ULL) << 8 : 0;
}

/* note_fewest stores the number of flows of the least loaded member. New flows do not lower it, and the CPU that ends a
 * flow updates it: see count_flow(). If two CPUs store it at the same time, the older value may win. Then some flows go
 * to a member with nearly the fewest flows. */
static __always_inline void note_fewest(struct turn *turn, const struct pick *pick, __u64 rank)
{
	if (turn && pick->count <= LEAST_WINDOW && !dry_run())
		*(volatile __u64 *)&turn->fewest = (__u64)pick->table << 32 | rank >> 8;
}

/* pick_least_conn is pick_weighted_least_conn where no member has a weight or a bound. It compares two members at a
 * time, because each comparison depends on the one before it; with an odd number of members, one is compared twice. No
 * other is compared if the first is known to have the fewest flows, as it nearly always has while flows begin and none
 * ends. Testing that for each member would make verification of the whole program half as long again. This function is
 * verified once; inlined, its loop would be verified for each of the caller's states, a third of all verified
 * instructions. */
__noinline __u32 pick_least_conn(const struct pick *pick, __u32 service)
{
	__u64 lowest = RANK_NONE, other = RANK_NONE, start, bound, first, second, member;
	void *generation = current_generation();
	struct turn *turn = turn_of(service);

	if (!pick)
		return NO_MEMBER;
	start = first_compared(pick);
	bound = known_fewest(turn, pick);
	if (!rank_of(generation, pick, start, 0, &first))
		return NO_MEMBER;
	if (first < bound)
		return start;
	for (__u32 i = 0; i < LEAST_WINDOW; i += 2) {
		if (i >= pick->count)
			break;
		if (!rank_of(generation, pick, start, i, &first) ||
		    !rank_of(generation, pick, start, i + 1, &second))
			return NO_MEMBER;
		lowest = lower_rank(first, lowest);
		other = lower_rank(second, other);
	}
	lowest = lower_rank(lowest, other);
	note_fewest(turn, pick, lowest);
	member = start + (lowest & 0xff);
	return member < pick->count ? member : member - pick->count;
}

static __always_inline __u32 pick_two_choices(void *generation, const struct pick *pick, __u32 size)
{
	__u64 random = hash_mix(((__u64)pick->hash << 32 | (__u32)pick->turn) + loaded.flow_secret);
	struct best best = NO_BEST;

	compare_load(generation, pick->members,
		     member_in(generation, pick->table, hash_scale(random >> 32, size)), &best);
	compare_load(generation, pick->members,
		     member_in(generation, pick->table, hash_scale((__u32)random, size)), &best);
	return best.member;
}

/* first_not_full returns the first of up to COMPARED_AT_ONCE members from `first` on that is not full. It is verified
 * once: see compare_some(). */
__noinline __u32 first_not_full(__u32 members, __u32 count, __u32 first)
{
	void *generation = current_generation();

	for (__u32 i = 0; i < COMPARED_AT_ONCE; i++) {
		__u32 member = first + i;
		struct backend_load *load;
		struct backend *row;

		if (member >= count)
			break;
		row = member_at(generation, (__u64)members + member);
		if (!row)
			break;
		load = load_of(row->index);
		if (load && !is_full(load))
			return member;
	}
	return NO_MEMBER;
}

static __always_inline __u32 pick_first(const struct pick *pick)
{
	for (__u32 first = 0; first < SPARE_WINDOW; first += COMPARED_AT_ONCE) {
		__u32 member;

		if (first >= pick->count)
			break;
		member = first_not_full(pick->members, pick->count, first);
		if (member != NO_MEMBER)
			return member;
	}
	return NO_MEMBER;
}

/* schedules_by reports whether a service has this scheduler: code for one that no service has is not in the loaded
 * program. */
static __always_inline bool schedules_by(const struct service *service, enum scheduler scheduler)
{
	return has_scheduler(scheduler) && service->scheduler == scheduler;
}

static __always_inline __u32 pick_member(void *generation, const struct service *service,
					 const struct pick *pick)
{
	if (schedules_by(service, SCHEDULER_ROUND_ROBIN))
		return pick_round_robin(generation, pick);
	if (schedules_by(service, SCHEDULER_WEIGHTED_LEAST_CONN) || schedules_by(service, SCHEDULER_LEAST_CONN))
		return pick_weighted_least_conn(pick);
	if (schedules_by(service, SCHEDULER_TWO_CHOICES))
		return pick_two_choices(generation, pick, service->table_size);
	if (schedules_by(service, SCHEDULER_FIRST))
		return pick_first(pick);
	return member_in(generation, pick->table, hash_scale(pick->hash, service->table_size));
}

/* Results of pick_backend where it picks no backend: there is none, or all are full. */
#define PICK_NONE (1ULL << 32)
#define PICK_FULL (1ULL << 33)

/* member_index returns the index of a member's backend. `limited`: it must not be full. */
static __always_inline __u64 member_index(void *generation, __u32 members, __u32 member,
					  bool limited)
{
	struct backend *row = member_at(generation, (__u64)members + member);
	struct backend_load *load;

	if (member == NO_MEMBER || !row)
		return PICK_NONE;
	if (!limited)
		return row->index;
	load = load_of(row->index);
	return load && is_full(load) ? PICK_FULL : row->index;
}

/* next_turn counts a new flow of a service, and returns the count before it. */
static __always_inline __u64 next_turn(const struct service *service)
{
	struct turn *turn = turn_of(service->id);

	if (!turn)
		return 0;
	return dry_run() ? turn->next : __sync_fetch_and_add(&turn->next, 1);
}

/* pick_spare picks another member for a flow where the one that was picked is full. */
static __always_inline __u64 pick_spare(void *generation, const struct pick *pick)
{
	__u32 member = least_loaded(pick->members, pick->count, pick->turn % pick->count, SPARE_WINDOW);

	return member == NO_MEMBER ? PICK_FULL :
				     member_index(generation, pick->members, member, false);
}

/* init_pick fills in the inputs; false where there is no member to pick. */
static __always_inline bool init_pick(void *generation, const struct service *service,
				      __u32 hash, struct pick *pick)
{
	__u64 block = read_block(&service->current);
	__u32 counts;

	if (!service->table_size)
		return false;
	pick->table = table_of(block);
	pick->members = members_of(block);
	counts = counts_before(generation, pick->table);
	pick->count = counts >> SEQUENCE_BITS;
	pick->length = counts & ((1 << SEQUENCE_BITS) - 1);
	pick->hash = hash;
	if (!pick->count)
		return false;
	pick->turn = service->scheduler == SCHEDULER_HASH ? hash : next_turn(service);
	return true;
}

/* pick_backend picks the backend of a new flow: its index, or PICK_NONE or PICK_FULL. */
__noinline __u64 pick_backend(const struct service *service, __u32 hash)
{
	void *generation = current_generation();
	struct pick pick = {};
	__u64 index;

	if (!service || !init_pick(generation, service, hash, &pick))
		return PICK_NONE;
	index = member_index(generation, pick.members, pick_member(generation, service, &pick),
			     service->flags & SERVICE_LIMITED);
	if (!(service->flags & SERVICE_LIMITED) || index < PICK_NONE)
		return index;
	return pick_spare(generation, &pick);
}
