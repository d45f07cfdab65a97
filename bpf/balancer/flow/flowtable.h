/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tables of flows: buckets of a cache line of tags and eight flows. A flow is in its home or in a second bucket (Y.
 * Azar et al., "Balanced Allocations", 1999), so that nearly as many flows fit as the table was sized for, and a lookup
 * reads a line or two besides the flow. An insertion into two full buckets fails: evict.h decides on evictions. A place
 * is acquired and released by compare-and-swap of one word, so that CPUs and the control plane need no lock. */
#pragma once

#include "../hash.h"
#include "../maps.h"
#include "../trace.h"

#define TAG_ONES 0x0001000100010001ULL
#define TAG_HIGHS 0x8000800080008000ULL
/* Attempts of a compare-and-swap that others contend for. */
#define CAS_TRIES 8
/* Tags in a home bucket from which on the second bucket is tried. */
#define HOME_THRESHOLD 6

/* place is the place of a flow: the number of the bucket times FLOW_BUCKET, plus the index in the bucket, plus 1; 0:
 * none. */
typedef __u32 place_t;

static __always_inline struct flow_bucket *bucket_at(bool proven, __u32 at)
{
	return proven ? bpf_map_lookup_elem(&flows, &at) : bpf_map_lookup_elem(&newcomers, &at);
}

static __always_inline __u32 bucket_count(bool proven)
{
	return proven ? loaded.flow_buckets : loaded.newcomer_buckets;
}

/* hash_key places a flow. Unlike hash_flow() it has a secret, so that no sender can know which flows share a bucket. */
static __always_inline __u64 hash_key(const __be32 *address, __be16 port, __u32 service,
				      bool ipv6)
{
	__u64 h = loaded.flow_secret + ((__u64)port << 32 | service) * HASH_MULTIPLIER3;

	if (ipv6)
		h += ((__u64)address[1] << 32 | address[0]) * HASH_MULTIPLIER +
		     ((__u64)address[3] << 32 | address[2]) * HASH_MULTIPLIER2;
	else
		h += address[0] * HASH_MULTIPLIER;
	return hash_mix(h);
}

static __always_inline __u32 home_of(__u64 hash, __u32 buckets)
{
	return hash_scale(hash >> 32, buckets);
}

static __always_inline __u32 second_of(__u64 hash, __u32 buckets)
{
	return hash_scale((__u32)(hash >> 16) * 0x9e3779b1, buckets);
}

/* tag_of is never 0 nor FLOW_BUSY. */
static __always_inline __u64 tag_of(__u64 hash)
{
	__u64 tag = hash & 0xffff;

	return tag < 2 ? tag + 2 : tag;
}

/* overflow_bit is the bit that a flow in its second bucket sets in its home bucket. */
static __always_inline __u64 overflow_bit(__u64 hash)
{
	return 1ULL << 32 << (tag_of(hash) & 31);
}

/* preferred_slot_of is the place of a bucket that a flow takes if it is free: its memory can be prefetched before the
 * bucket's tags are read. */
static __always_inline __u32 preferred_slot_of(__u64 hash)
{
	return hash >> 24 & (FLOW_BUCKET - 1);
}

/* match_tags marks the tags of a word that equal `tag`. It may also mark a different tag above an equal one (H. Warren,
 * "Hacker's Delight", section 6-1). */
static __always_inline __u64 match_tags(__u64 word, __u64 tag)
{
	__u64 x = word ^ tag * TAG_ONES;

	return (x - TAG_ONES) & ~x & TAG_HIGHS;
}

/* free_tags marks the tags of a word that are 0, and no others. */
static __always_inline __u64 free_tags(__u64 word)
{
	return ~(((word & ~TAG_HIGHS) + ~TAG_HIGHS) | word | ~TAG_HIGHS);
}

/* lowest_tag is the index of the lowest marked tag of the four. */
static __always_inline __u32 lowest_tag(__u64 marks)
{
	return ((marks & -marks) >> 15) * 0x0000000100020003ULL >> 48 & 3;
}

static __always_inline __u32 count_marks(__u64 marks)
{
	return (marks >> 15) * TAG_ONES >> 48;
}

static __always_inline __u32 tags_in(const struct flow_bucket *bucket)
{
	return FLOW_BUCKET - count_marks(free_tags(bucket->tags[0])) -
	       count_marks(free_tags(bucket->tags[1]));
}

static __always_inline bool is_flow(const struct flow *flow, const __be32 *address, __be16 port,
				    __u32 service, bool ipv6)
{
	if (flow->service != service || flow->port != port || flow->address[0] != address[0])
		return false;
	return !ipv6 || (flow->address[1] == address[1] && flow->address[2] == address[2] &&
			 flow->address[3] == address[3]);
}

/* find_except looks a flow up in one bucket, at places other than `except` (0 to 7, or FLOW_BUCKET). */
static __always_inline __u32 find_except(const struct flow_bucket *bucket, __u64 hash,
					 const __be32 *address, __be16 port, __u32 service, __u32 except)
{
	__u64 tag = tag_of(hash);

#pragma unroll
	for (int word = 0; word < 2; word++) {
		__u64 marks = match_tags(bucket->tags[word], tag);

		for (int i = 0; i < 4 && marks; i++) {
			__u32 at = word * 4 + lowest_tag(marks);

			if (at != except &&
			    is_flow(&bucket->flows[at & 7], address, port, service, true))
				return at;
			marks &= marks - 1;
		}
	}
	return FLOW_BUCKET;
}

static __always_inline __u32 find_in(const struct flow_bucket *bucket, __u64 hash,
				     const __be32 *address, __be16 port, __u32 service)
{
	return find_except(bucket, hash, address, port, service, FLOW_BUCKET);
}

/* find_second looks a flow up in its second bucket, which it is in if its home bucket was full. */
static __always_inline place_t find_second(bool proven, __u64 hash, const __be32 *address,
					   __be16 port, __u32 service)
{
	__u32 index = second_of(hash, bucket_count(proven)), at;
	struct flow_bucket *bucket = bucket_at(proven, index);

	if (!bucket)
		return 0;
	at = find_in(bucket, hash, address, port, service);
	return at < FLOW_BUCKET ? index * FLOW_BUCKET + at + 1 : 0;
}

/* search_inline looks a flow up in a table, at every place that has its tag. */
static __always_inline place_t search_inline(bool proven, __u64 hash, const __be32 *address,
					     __be16 port, __u32 service)
{
	__u32 index = home_of(hash, bucket_count(proven)), at;
	struct flow_bucket *bucket = bucket_at(proven, index);

	if (!bucket)
		return 0;
	at = find_in(bucket, hash, address, port, service);
	if (at < FLOW_BUCKET)
		return index * FLOW_BUCKET + at + 1;
	return bucket->elsewhere & overflow_bit(hash) ?
		       find_second(proven, hash, address, port, service) :
		       0;
}

/* search_place is the same for a key in memory, NULL for none. */
__noinline __u32 search_place(const struct flow *key, __u64 hash, __u32 proven)
{
	if (!key)
		return 0;
	return proven ? search_inline(true, hash, key->address, key->port, key->service) :
			search_inline(false, hash, key->address, key->port, key->service);
}

/* find_first looks a flow up in a bucket at the first place of each word that has its tag: 0 to 7, or FLOW_BUCKET.
 * *more: a place has the tag, but another flow. */
static __always_inline __u32 find_first(const struct flow_bucket *bucket, __u64 hash,
					const __be32 *address, __be16 port, __u32 service,
					bool ipv6, bool *more)
{
	__u64 tag = tag_of(hash);

	*more = false;
#pragma unroll
	for (int word = 0; word < 2; word++) {
		__u64 marks = match_tags(bucket->tags[word], tag);
		__u32 at = word * 4 + lowest_tag(marks);

		if (!marks)
			continue;
		if (is_flow(&bucket->flows[at & 7], address, port, service, ipv6))
			return at;
		*more = true;
	}
	return FLOW_BUCKET;
}

/* find_place looks a flow up in a table, at the place where nearly all flows are. *search: it is not there, but may be
 * at another place, like the few flows that share their tag with another in the bucket or are in their second bucket.
 * search_place() finds those. It is verified once: inlined, its loops were a fourth of all verified instructions. For a
 * flow that is `likely` to be there, the memory of its preferred place is prefetched while the tags are still being
 * loaded. */
static __always_inline place_t find_place(bool proven, bool likely, __u64 hash,
					  const __be32 *address, __be16 port, __u32 service,
					  bool ipv6, bool *search)
{
	__u32 index = home_of(hash, bucket_count(proven)), at;
	struct flow_bucket *bucket = bucket_at(proven, index);

	*search = false;
	if (!bucket)
		return 0;
	if (likely)
		asm volatile("" : : "r"(*(volatile __u64 *)&bucket->flows[preferred_slot_of(hash)]));
	at = find_first(bucket, hash, address, port, service, ipv6, search);
	if (at < FLOW_BUCKET)
		return index * FLOW_BUCKET + at + 1;
	*search = *search || (bucket->elsewhere & overflow_bit(hash));
	return 0;
}

/* find_key is the same for a key in memory, wherever it is. */
static __always_inline place_t find_key(const struct flow *key, __u64 hash, bool proven)
{
	bool search;
	place_t place = find_place(proven, false, hash, key->address, key->port, key->service, true,
				   &search);

	return search ? search_place(key, hash, proven) : place;
}

/* has_duplicate reports whether an unproven flow has an entry at another place too: two CPUs have created it at the
 * same time. */
__noinline int has_duplicate(const struct flow *key, __u64 hash, __u32 place)
{
	__u32 buckets = loaded.newcomer_buckets, at = (place - 1) % FLOW_BUCKET;
	__u32 own = (place - 1) / FLOW_BUCKET, index = home_of(hash, buckets);
	struct flow_bucket *bucket = bucket_at(false, index);

	if (!key || !bucket)
		return false;
	if (find_except(bucket, hash, key->address, key->port, key->service,
			index == own ? at : FLOW_BUCKET) < FLOW_BUCKET)
		return true;
	/* The bit is set before a flow is in the second bucket: of two CPUs, the later one sees the other's. */
	if (!(bucket->elsewhere & overflow_bit(hash)))
		return false;
	index = second_of(hash, buckets);
	bucket = bucket_at(false, index);
	return bucket && find_except(bucket, hash, key->address, key->port, key->service,
				     index == own ? at : FLOW_BUCKET) < FLOW_BUCKET;
}

static __always_inline struct flow_bucket *bucket_of(bool proven, place_t place)
{
	return bucket_at(proven, (place - 1) / FLOW_BUCKET);
}

static __always_inline __u32 index_of(place_t place)
{
	return (place - 1) % FLOW_BUCKET;
}

/* state_of reads the flow's byte by its own address, which depends on the tag by which the flow was found: the word of
 * all eight might be read before the tag, with the state of the previous flow at the place. */
static __always_inline __u32 state_of(const struct flow_bucket *bucket, __u32 at)
{
	return ((const __u8 *)&bucket->states)[at & (FLOW_BUCKET - 1)];
}

/* set_state changes a flow from one state to another, once: of several CPUs that see it end, one counts that. Its loop
 * is verified once, not for each state of each caller. */
__noinline int set_state(struct flow_bucket *bucket, __u32 at, __u64 from, __u64 to)
{
	if (!bucket)
		return false;
	for (int i = 0; i < CAS_TRIES; i++) {
		__u64 old = bucket->states;

		if ((old >> 8 * at & 0xff) != from)
			return false;
		if (__sync_val_compare_and_swap(&bucket->states, old,
						old ^ (from ^ to) << 8 * at) == old)
			return true;
	}
	return false;
}

/* put_state writes the state of a place that the caller has claimed. */
static __always_inline bool put_state(struct flow_bucket *bucket, __u32 at, __u64 to)
{
	for (int i = 0; i < CAS_TRIES; i++) {
		__u64 old = bucket->states;

		if (__sync_val_compare_and_swap(&bucket->states, old,
						(old & ~(0xffULL << 8 * at)) | to << 8 * at) == old)
			return true;
	}
	return false;
}

/* claim_place acquires a free place in a bucket, the preferred one if it can: 0 to 7, or FLOW_BUCKET. */
static __always_inline __u32 claim_place(struct flow_bucket *bucket, __u32 preferred)
{
	for (int i = 0; i < CAS_TRIES; i++) {
		__u32 word = preferred >> 2 & 1, at = preferred & 3;
		__u64 old = bucket->tags[word];

		if (old >> 16 * at & 0xffff) {
			word = free_tags(bucket->tags[0]) ? 0 : 1;
			old = bucket->tags[word];
			at = lowest_tag(free_tags(old));
			if (!free_tags(old))
				return FLOW_BUCKET;
		}
		if (__sync_val_compare_and_swap(&bucket->tags[word], old,
						old | (__u64)FLOW_BUSY << 16 * at) == old)
			return word * 4 + at;
	}
	return FLOW_BUCKET;
}

/* release_place frees a place if it still has this tag. */
static __always_inline bool release_place(struct flow_bucket *bucket, __u32 at, __u64 tag)
{
	__u32 shift = 16 * (at & 3), word = at >> 2 & 1;

	for (int i = 0; i < CAS_TRIES; i++) {
		__u64 old = bucket->tags[word];

		if ((old >> shift & 0xffff) != tag)
			return false;
		if (__sync_val_compare_and_swap(&bucket->tags[word], old, old ^ tag << shift) ==
		    old)
			return true;
	}
	return false;
}

/* publish_tag replaces the busy tag by the flow's tag, after all earlier writes and before all later reads: an addition
 * that returns the old value is a full barrier, one that does not is none. A lookup that finds the tag reads the flow
 * at an address that depends on the tag. */
static __always_inline void publish_tag(__u64 *word, __u64 change)
{
	__u64 old = __sync_fetch_and_add(word, change);

	asm volatile("" : : "r"(old));
}

/* note_created sets the flag by which the control plane knows that there may be entries to expire: it does not scan
 * tables that are known to be empty. To be called after the tag is published. */
static __always_inline void note_created(void)
{
	volatile struct head *head = current_generation();

	if (!head->remembered)
		head->remembered = 1;
}

/* write_flow writes a flow into a claimed place, and publishes its tag when the entry is complete. */
static __always_inline void write_flow(struct flow_bucket *bucket, __u64 at,
				       const struct flow *flow, __u64 hash, __u32 state,
				       __u32 clock)
{
	if (!WITHIN(at, FLOW_BUCKET))
		return;
	bucket->flows[at] = *flow;
	bucket->seen[at] = clock;
	((__u8 *)&bucket->states)[at] = state;
	publish_tag(&bucket->tags[at >> 2 & 1], (tag_of(hash) - FLOW_BUSY) << 16 * (at & 3));
	note_created();
}

/* insert_in puts a flow into a bucket: 1 to 8, or 0 where there is no room. */
static __always_inline __u32 insert_in(struct flow_bucket *bucket, const struct flow *flow,
				       __u64 hash, __u32 state, __u32 clock)
{
	__u32 at = claim_place(bucket, preferred_slot_of(hash));

	if (at >= FLOW_BUCKET)
		return 0;
	write_flow(bucket, at, flow, hash, state, clock);
	return at + 1;
}

/* inc_overflow counts in a home bucket a flow that is in its second bucket; false if too many CPUs change the count at
 * the same time. */
static __always_inline bool inc_overflow(struct flow_bucket *home, __u64 hash)
{
	for (int i = 0; i < CAS_TRIES; i++) {
		__u64 old = home->elsewhere;

		if (__sync_val_compare_and_swap(&home->elsewhere, old,
						(old + 1) | overflow_bit(hash)) == old)
			return true;
	}
	return false;
}

/* dec_overflow decrements the count. With the last flow, the bits of all are cleared. */
static __always_inline void dec_overflow(struct flow_bucket *home)
{
	for (int i = 0; i < CAS_TRIES; i++) {
		__u64 old = home->elsewhere;

		if (__sync_val_compare_and_swap(&home->elsewhere, old,
						(__u32)old == 1 ? 0 : old - 1) == old)
			return;
	}
	/* Bits that stay set only cost a lookup. */
	__sync_fetch_and_add(&home->elsewhere, -1);
}

static __always_inline place_t place_of(__u32 index, __u32 slot)
{
	return slot ? index * FLOW_BUCKET + slot : 0;
}

/* insert_as puts a flow into a table; 0 if there is no room. */
static __always_inline place_t insert_as(bool proven, const struct flow *flow, __u64 hash,
					 __u32 state, __u32 clock)
{
	__u32 buckets = bucket_count(proven), first = home_of(hash, buckets), tags, slot;
	struct flow_bucket *home = bucket_at(proven, first), *second;

	if (!home)
		return 0;
	tags = tags_in(home);
	if (tags >= HOME_THRESHOLD) {
		__u32 other = second_of(hash, buckets);

		second = bucket_at(proven, other);
		if (second && other != first && tags_in(second) < tags &&
		    inc_overflow(home, hash)) {
			slot = insert_in(second, flow, hash, state, clock);
			if (!slot)
				dec_overflow(home);
			return place_of(other, slot);
		}
	}
	return place_of(first, insert_in(home, flow, hash, state, clock));
}

/* insert_flow is not inlined: it is long. */
__noinline __u32 insert_flow(const struct flow *flow, __u64 hash, __u32 proven, __u32 state,
			     __u32 clock)
{
	if (!flow)
		return 0;
	return proven ? insert_as(true, flow, hash, state, clock) :
			insert_as(false, flow, hash, state, clock);
}

static __always_inline bool remove_as(bool proven, place_t place, __u64 hash)
{
	struct flow_bucket *bucket = bucket_of(proven, place), *home;
	__u32 first = home_of(hash, bucket_count(proven));

	if (!bucket || !release_place(bucket, index_of(place), tag_of(hash)))
		return false;
	if (first == (place - 1) / FLOW_BUCKET)
		return true;
	home = bucket_at(proven, first);
	if (home)
		dec_overflow(home);
	return true;
}

/* remove_flow frees the place of a flow; false where another CPU has freed it. */
__noinline int remove_flow(__u32 place, __u64 hash, __u32 proven)
{
	return proven ? remove_as(true, place, hash) : remove_as(false, place, hash);
}

/* prefetch_buckets prefetches the tags of a flow's home buckets, and the place that it will take if it is new. */
static __always_inline void prefetch_buckets(__u64 hash)
{
	struct flow_bucket *proven = bucket_at(true, home_of(hash, loaded.flow_buckets));
	struct flow_bucket *unproven = bucket_at(false, home_of(hash, loaded.newcomer_buckets));

	if (proven)
		asm volatile("" : : "r"(*(volatile __u64 *)proven->tags));
	if (!unproven)
		return;
	asm volatile("" : : "r"(*(volatile __u64 *)unproven->tags));
	asm volatile("" : : "r"(*(volatile __u64 *)&unproven->flows[preferred_slot_of(hash)]));
}

/* note_change stores the time at which a flow has begun or ended: the entry may be synchronised to another balancer,
 * which compares the time with that of its own entry. */
static __always_inline void note_change(struct flow_bucket *bucket, __u32 at, __u32 clock)
{
	if (bucket->seen[at] != clock && !dry_run())
		bucket->seen[at] = clock;
}

/* note_seen refreshes a flow's expiry. */
static __always_inline void note_seen(struct flow_bucket *bucket, __u32 at, __u32 clock)
{
	if (clock - bucket->seen[at] >= FLOW_NOTE_EVERY && !dry_run())
		bucket->seen[at] = clock;
}
