/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table that finds a full-NAT flow by the 5-tuple of its replies. An entry has the place of the flow, and the
 * flow's own key decides whether it matches: so an entry of a flow that has ended is harmless, and need not be removed
 * in time. */
#pragma once

#include "flowtable.h"
#include "../parse.h"

/* Attempts to acquire a place that another CPU acquires at the same time. Each costs as many verified instructions as
 * the rest of this file. */
#define RETURN_TRIES 3

/* hash_return hashes the 5-tuple of replies, from a backend to the pool. */
static __always_inline __u64 hash_return(const struct packet *reply)
{
	__u64 h = loaded.flow_secret + ((__u64)reply->source_port << 48 |
					(__u64)reply->destination_port << 32 | reply->protocol) *
					       HASH_MULTIPLIER3;

	h += ((__u64)reply->source[1] << 32 | reply->source[0]) * HASH_MULTIPLIER;
	h += ((__u64)reply->destination[1] << 32 | reply->destination[0]) * HASH_MULTIPLIER4;
	if (reply->ipv6) {
		h += ((__u64)reply->source[3] << 32 | reply->source[2]) * HASH_MULTIPLIER2;
		h += ((__u64)reply->destination[3] << 32 | reply->destination[2]) *
		     HASH_MULTIPLIER5;
	}
	return hash_mix(h);
}

static __always_inline struct return_bucket *returns_at(__u32 index)
{
	return bpf_map_lookup_elem(&returns, &index);
}

static __always_inline struct flow_bucket *flows_at(__u32 place)
{
	return bucket_of(place & RETURN_PROVEN, place & ~RETURN_PROVEN);
}

/* flow_at returns the flow at a place, or NULL where there is none. */
static __always_inline struct flow *flow_at(__u32 place)
{
	struct flow_bucket *bucket = place & ~RETURN_PROVEN ? flows_at(place) : NULL;
	__u32 at = index_of(place & ~RETURN_PROVEN);

	return bucket && state_of(bucket, at) != FLOW_FREE ? &bucket->flows[at] : NULL;
}

/* is_reply_to reports whether a packet with this 5-tuple belongs to the flow. */
static __always_inline bool is_reply_to(void *generation, const struct flow *flow,
					const struct packet *reply)
{
	struct backend *backend;
	struct turn *turn;
	__be32 *pool;

	if (flow->source.port != reply->destination_port)
		return false;
	backend = backend_at(generation, flow->backend);
	if (!backend || backend->generation != flow->generation ||
	    backend->port != reply->source_port || !same_address(backend->address, reply->source))
		return false;
	pool = source_at(generation, backend, flow->source.address);
	if (!pool || !same_address(pool, reply->destination))
		return false;
	turn = turn_of(flow->service);
	return turn && turn->protocol == reply->protocol;
}

/* find_in_returns looks a flow up in one bucket: a place, or 0. An entry for the place `except` is ignored. */
static __always_inline __u32 find_in_returns(void *generation, const struct return_bucket *bucket,
					     __u64 hash, const struct packet *reply, __u32 except)
{
	for (int i = 0; i < RETURN_BUCKET; i++) {
		__u64 tag = bucket->tags[i >> 2 & 1] >> 16 * (i & 3) & 0xffff;
		struct flow *flow;
		__u32 place;

		if (tag != tag_of(hash))
			continue;
		/* Written before the tag. */
		place = READ_AFTER(is_weak(), bucket, &bucket->tags[i >> 2 & 1])->places[i];
		flow = place != except ? flow_at(place) : NULL;
		if (flow && is_reply_to(generation, flow, reply))
			return place;
	}
	return 0;
}

static __always_inline __u32 find_return_inline(void *generation, const struct packet *reply,
						__u64 hash, __u32 except)
{
	struct return_bucket *bucket = returns_at(home_of(hash, loaded.return_buckets));
	__u32 place = bucket ? find_in_returns(generation, bucket, hash, reply, except) : 0;

	if (place)
		return place;
	bucket = returns_at(second_of(hash, loaded.return_buckets));
	return bucket ? find_in_returns(generation, bucket, hash, reply, except) : 0;
}

/* find_return returns the place of the flow that a reply belongs to, or 0. */
__noinline __u32 find_return(const struct packet *reply, __u64 hash, __u32 except)
{
	void *generation = current_generation();

	return reply ? find_return_inline(generation, reply, hash, except) : 0;
}

/* is_stale reports whether the place of an entry now holds another flow. The entry of a flow that moves gets the new
 * place before the old one is free, so the place is read again. */
static __always_inline bool is_stale(const struct return_bucket *bucket, __u32 at)
{
	__u32 place = *(volatile __u32 *)&bucket->places[at];
	struct flow *flow = flow_at(place);

	if (flow && (__u32)hash_key(flow->address, flow->port, flow->service, true) ==
			    bucket->owners[at])
		return false;
	order_all(is_weak());
	return *(volatile __u32 *)&bucket->places[at] == place;
}

/* free_return returns a free place in a bucket, or RETURN_BUCKET. */
static __always_inline __u32 free_return(const struct return_bucket *bucket)
{
	for (__u32 i = 0; i < RETURN_BUCKET; i++)
		if (!(bucket->tags[i >> 2] >> 16 * (i & 3) & 0xffff))
			return i;
	return RETURN_BUCKET;
}

/* stale_return returns a place whose entry can be replaced, or RETURN_BUCKET. */
static __always_inline __u32 stale_return(const struct return_bucket *bucket)
{
	for (__u32 i = 0; i < RETURN_BUCKET; i++)
		if ((bucket->tags[i >> 2] >> 16 * (i & 3) & 0xffff) > FLOW_BUSY &&
		    is_stale(bucket, i))
			return i;
	return RETURN_BUCKET;
}

/* write_return acquires a place in a bucket that is free, or has a stale entry; `was` is the word of its tag when that
 * was tested. */
static __always_inline bool write_return(struct return_bucket *bucket, __u32 at, __u64 old,
					 __u64 hash, __u32 place, __u32 owner)
{
	__u32 shift = 16 * (at & 3), word = at >> 2 & 1;
	__u64 busy = (old & ~(0xffffULL << shift)) | (__u64)FLOW_BUSY << shift;

	if ((old >> shift & 0xffff) == FLOW_BUSY || at >= RETURN_BUCKET)
		return false;
	if (__sync_val_compare_and_swap(&bucket->tags[word], old, busy) != old)
		return false;
	bucket->places[at] = place;
	bucket->owners[at] = owner;
	publish_tag(&bucket->tags[word], (tag_of(hash) - FLOW_BUSY) << shift);
	return true;
}

/* put_return puts an entry into one bucket. */
__noinline int put_return(__u32 index, __u64 hash, __u32 place, __u32 owner)
{
	struct return_bucket *bucket = returns_at(index);
	__u64 was[2];
	__u32 at;

	if (!bucket)
		return false;
	for (int i = 0; i < RETURN_TRIES; i++) {
		was[0] = *(volatile __u64 *)&bucket->tags[0];
		was[1] = *(volatile __u64 *)&bucket->tags[1];
		/* The other words of an entry are read after its tag. */
		order_all(is_weak());
		at = free_return(bucket);
		if (at >= RETURN_BUCKET)
			at = stale_return(bucket);
		if (at >= RETURN_BUCKET)
			return false;
		if (write_return(bucket, at, at < 4 ? was[0] : was[1], hash, place, owner))
			return true;
	}
	return false;
}

/* insert_return makes an entry for the flow at a place, or returns false: no room. */
__noinline int insert_return(__u64 hash, __u32 place, __u64 owner)
{
	struct return_bucket *home, *second;
	__u32 first = home_of(hash, loaded.return_buckets);
	__u32 other = second_of(hash, loaded.return_buckets);

	home = returns_at(first);
	second = returns_at(other);
	if (!home || !second)
		return false;
	if (free_return(home) >= RETURN_BUCKET - 2 && free_return(second) < free_return(home))
		return put_return(other, hash, place, owner) || put_return(first, hash, place, owner);
	return put_return(first, hash, place, owner) || put_return(other, hash, place, owner);
}

/* entry_of finds the entry for the flow at a place, in one bucket: 0 to 5, or
 * RETURN_BUCKET. */
static __always_inline __u32 entry_of(const struct return_bucket *bucket, __u64 hash, __u32 place)
{
	for (__u32 i = 0; i < RETURN_BUCKET; i++)
		if ((bucket->tags[i >> 2] >> 16 * (i & 3) & 0xffff) == tag_of(hash) &&
		    bucket->places[i] == place)
			return i;
	return RETURN_BUCKET;
}

/* change_return moves the entry for the flow at a place, or removes it (`to` 0). */
static __always_inline bool change_return(__u32 index, __u64 hash, __u32 place, __u32 to)
{
	struct return_bucket *bucket = returns_at(index);
	__u32 at = bucket ? entry_of(bucket, hash, place) : RETURN_BUCKET;

	if (at >= RETURN_BUCKET)
		return false;
	if (to)
		bucket->places[at] = to;
	else
		__sync_fetch_and_add(&bucket->tags[at >> 2 & 1],
				     -(tag_of(hash) << 16 * (at & 3)));
	return true;
}

__noinline int move_return(__u64 hash, __u32 place, __u32 to)
{
	return change_return(home_of(hash, loaded.return_buckets), hash, place, to) ||
	       change_return(second_of(hash, loaded.return_buckets), hash, place, to);
}

static __always_inline int remove_return(__u64 hash, __u32 place)
{
	return move_return(hash, place, 0);
}
