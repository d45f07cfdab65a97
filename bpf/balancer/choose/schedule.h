/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which backend a new flow gets, and whether it may begin at all. */
#pragma once

#include "../flow/flowtable.h"
#include "../flow/load.h"
#include "../maps.h"
#include "../trace.h"

/* Members that the fewest-flows schedulers compare for a flow, and those that are asked
 * when the one that was picked is full. */
#define LEAST_WINDOW 32
#define SPARE_WINDOW 64

/* No member has this number. */
#define NO_MEMBER 0xffffffff

/* pair reads a block in one load. */
static __always_inline __u64 pair(const struct block *block)
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

/* before is the number that stands before a table: see struct block. */
static __always_inline __u32 before(void *generation, __u32 table)
{
	__u16 *low = slot_at(generation, (__u64)table - 2), *high = slot_at(generation, (__u64)table - 1);

	return low && high ? *low | (__u32)*high << 16 : 0;
}

/* best is the member with the fewest flows for its weight, of those looked at. */
struct best {
	__u64 flows;
	__u64 weight;
	__u64 member;
};

/* Before any member was looked at: of no weight, so that any member is better. */
#define NO_BEST { .flows = 1, .member = NO_MEMBER }

/* weigh compares a member with the best one: (flows + 1) / weight, multiplied out. Without a
 * branch: which of many members is the best so far is nothing that a processor can guess. */
static __always_inline void weigh(void *generation, __u32 members, __u32 member,
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
	flows = burden_of(load) + 1;
	/* All ones, or 0: the products are below 2^50. */
	better = (__s64)(flows * best->weight - best->flows * row->weight) >> 63;
	barrier_var(better);
	best->flows ^= (best->flows ^ flows) & better;
	best->weight ^= (best->weight ^ row->weight) & better;
	best->member ^= (best->member ^ member) & better;
}

/* WEIGHED_AT_ONCE is how many members one call of weigh_some() compares. */
#define WEIGHED_AT_ONCE 8

/* weigh_some compares up to WEIGHED_AT_ONCE members from `first` on, who may stand beyond the
 * last. Verifiers follow it once: of a loop over all members that are compared they would follow
 * each round for each branch of the rounds before, a fifth of all that they do. */
__noinline int weigh_some(__u32 members, __u32 count, __u32 first, __u32 left, struct best *best)
{
	void *generation = current_generation();

	if (!best)
		return 0;
	for (__u32 i = 0; i < WEIGHED_AT_ONCE; i++) {
		__u32 member = first + i;

		if (i >= left)
			break;
		if (member >= count)
			member -= count;
		weigh(generation, members, member, best);
	}
	return 0;
}

/* least_of looks at `window` members from `start` on, the first of which wins a tie. */
__noinline __u32 least_of(__u32 members, __u32 count, __u32 start, __u32 window)
{
	struct best best = NO_BEST;

	if (window > count)
		window = count;
	for (__u32 i = 0; i < SPARE_WINDOW; i += WEIGHED_AT_ONCE) {
		if (i >= window)
			break;
		weigh_some(members, count, start + i, window - i, &best);
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

static __always_inline __u32 pick_turn(void *generation, const struct pick *pick)
{
	__u16 *member;
	__u32 at;

	if (!pick->length)
		return NO_MEMBER;
	at = pick->turn % pick->length;
	member = slot_at(generation, (__u64)pick->table - 2 - pick->length + at);
	return member ? *member & SLOT_MEMBER : NO_MEMBER;
}

/* first_looked_at is the member that the fewest-flows schedulers begin with: of many, the
 * next flow looks at the next ones. */
static __always_inline __u32 first_looked_at(const struct pick *pick)
{
	__u64 step = pick->count <= LEAST_WINDOW ? 1 : LEAST_WINDOW;

	return pick->turn * step % pick->count;
}

static __always_inline __u32 pick_least(const struct pick *pick)
{
	return least_of(pick->members, pick->count, first_looked_at(pick), LEAST_WINDOW);
}

/* A standing is a member's number of flows, and in the low byte its place among the members looked at: the least one is
 * that of the first of those with the fewest flows. */
#define STANDING_NOBODY (1ULL << 62)

/* standing writes a member's; places beyond the last member wrap around. False where there is no such member, which
 * cannot be. */
static __always_inline bool standing(void *generation, const struct pick *pick, __u64 start,
				     __u64 looked, __u64 *is)
{
	__s64 beyond = start + looked - pick->count;
	struct backend_load *load;
	struct backend *row;

	row = member_at(generation, (__u64)pick->members + beyond + (pick->count & beyond >> 63));
	if (!row)
		return false;
	load = load_of(row->index);
	if (!load)
		return false;
	*is = burden_of(load) << 8 | looked;
	return true;
}

/* lesser is the lesser of two standings, without a branch that no processor could guess. */
static __always_inline __u64 lesser(__u64 a, __u64 b)
{
	__s64 less = a - b, mask = less >> 63;

	barrier_var(mask);
	return b + (less & mask);
}

/* few_enough is above the standings of members than whom none has fewer flows, and 0 where that is not known. */
static __always_inline __u64 few_enough(const struct turn *turn, const struct pick *pick)
{
	return turn && turn->fewest_table == pick->table ? (turn->fewest + 1ULL) << 8 : 0;
}

/* note_fewest keeps how many flows the least loaded of all members has. New flows do not
 * make it less, and the CPU that ends one notes it: see count_flow(). Of two CPUs that note
 * it at the same time one may be late. Then some flows go to the member whose turn it is, of
 * those with so few, and not to the very fewest. */
static __always_inline void note_fewest(struct turn *turn, const struct pick *pick, __u64 standing)
{
	if (turn && pick->count <= LEAST_WINDOW && !dry_run())
		*(volatile __u64 *)&turn->fewest = (__u64)pick->table << 32 | standing >> 8;
}

/* pick_fewest is pick_least where no member has a weight or a bound. Two at a time, for one
 * comparison waits for the one before it. A member that is looked at twice so, where they are
 * odd, loses to itself. No other is looked at if the first is known to have the fewest: while
 * flows begin and none ends, it nearly always has. To ask that of each would take verifiers
 * half as long again for the whole program. Verifiers
 * follow this function once; inlined, they would follow its loop for each of the caller's states,
 * a third of all that they do. */
__noinline __u32 pick_fewest(const struct pick *pick, __u32 service)
{
	__u64 one = STANDING_NOBODY, other = STANDING_NOBODY, start, enough, first, second, member;
	void *generation = current_generation();
	struct turn *turn = turn_of(service);

	if (!pick)
		return NO_MEMBER;
	start = first_looked_at(pick);
	enough = few_enough(turn, pick);
	if (!standing(generation, pick, start, 0, &first))
		return NO_MEMBER;
	if (first < enough)
		return start;
	for (__u32 i = 0; i < LEAST_WINDOW; i += 2) {
		if (i >= pick->count)
			break;
		if (!standing(generation, pick, start, i, &first) ||
		    !standing(generation, pick, start, i + 1, &second))
			return NO_MEMBER;
		one = lesser(first, one);
		other = lesser(second, other);
	}
	one = lesser(one, other);
	note_fewest(turn, pick, one);
	member = start + (one & 0xff);
	return member < pick->count ? member : member - pick->count;
}

static __always_inline __u32 pick_two(void *generation, const struct pick *pick, __u32 size)
{
	__u64 random = hash_mix(((__u64)pick->hash << 32 | (__u32)pick->turn) + loaded.flow_secret);
	struct best best = NO_BEST;

	weigh(generation, pick->members,
	      member_in(generation, pick->table, hash_scale(random >> 32, size)), &best);
	weigh(generation, pick->members,
	      member_in(generation, pick->table, hash_scale((__u32)random, size)), &best);
	return best.member;
}

/* free_of_some returns the first of up to WEIGHED_AT_ONCE members from `first` on who is not
 * full. Verifiers follow it once: see weigh_some(). */
__noinline __u32 free_of_some(__u32 members, __u32 count, __u32 first)
{
	void *generation = current_generation();

	for (__u32 i = 0; i < WEIGHED_AT_ONCE; i++) {
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
	for (__u32 first = 0; first < SPARE_WINDOW; first += WEIGHED_AT_ONCE) {
		__u32 member;

		if (first >= pick->count)
			break;
		member = free_of_some(pick->members, pick->count, first);
		if (member != NO_MEMBER)
			return member;
	}
	return NO_MEMBER;
}

/* schedules_by says whether a service has this scheduler: code for one that no service has is not
 * in the loaded program. */
static __always_inline bool schedules_by(const struct service *service, enum scheduler scheduler)
{
	return has_scheduler(scheduler) && service->scheduler == scheduler;
}

static __always_inline __u32 pick_member(void *generation, const struct service *service,
					 const struct pick *pick)
{
	if (schedules_by(service, SCHEDULER_TURN))
		return pick_turn(generation, pick);
	if (schedules_by(service, SCHEDULER_LEAST) || schedules_by(service, SCHEDULER_FEWEST))
		return pick_least(pick);
	if (schedules_by(service, SCHEDULER_TWO))
		return pick_two(generation, pick, service->table_size);
	if (schedules_by(service, SCHEDULER_FIRST))
		return pick_first(pick);
	return member_in(generation, pick->table, hash_scale(pick->hash, service->table_size));
}

/* Results of pick_backend where it picks no backend: there is none, or all are full. */
#define PICK_NONE (1ULL << 32)
#define PICK_FULL (1ULL << 33)

/* member_index goes from a member to its backend's index. `limited`: it must not be
 * full. */
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

/* take_turn counts a new flow of a service, and says how many came before it. */
static __always_inline __u64 take_turn(const struct service *service)
{
	struct turn *turn = turn_of(service->id);

	if (!turn)
		return 0;
	return dry_run() ? turn->next : __sync_fetch_and_add(&turn->next, 1);
}

/* pick_spare picks another member for a flow where the one that was picked is full. */
static __always_inline __u64 pick_spare(void *generation, const struct pick *pick)
{
	__u32 member = least_of(pick->members, pick->count, pick->turn % pick->count, SPARE_WINDOW);

	return member == NO_MEMBER ? PICK_FULL :
				     member_index(generation, pick->members, member, false);
}

/* begin_pick fills in the inputs; false where there is no member to pick. */
static __always_inline bool begin_pick(void *generation, const struct service *service,
				       __u32 hash, struct pick *pick)
{
	__u64 block = pair(&service->current);
	__u32 counts;

	if (!service->table_size)
		return false;
	pick->table = table_of(block);
	pick->members = members_of(block);
	counts = before(generation, pick->table);
	pick->count = counts >> SEQUENCE_BITS;
	pick->length = counts & ((1 << SEQUENCE_BITS) - 1);
	pick->hash = hash;
	if (!pick->count)
		return false;
	pick->turn = service->scheduler == SCHEDULER_HASH ? hash : take_turn(service);
	return true;
}

/* pick_backend chooses the backend of a new flow: its index, or PICK_NONE or PICK_FULL. */
__noinline __u64 pick_backend(const struct service *service, __u32 hash)
{
	void *generation = current_generation();
	struct pick pick = {};
	__u64 index;

	if (!service || !begin_pick(generation, service, hash, &pick))
		return PICK_NONE;
	index = member_index(generation, pick.members, pick_member(generation, service, &pick),
			     service->flags & SERVICE_LIMITED);
	if (!(service->flags & SERVICE_LIMITED) || index < PICK_NONE)
		return index;
	return pick_spare(generation, &pick);
}
