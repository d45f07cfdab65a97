/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps. Sizes of 1 are replaced when the program is loaded: every map is
 * as large as the configuration needs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "generation.h"
#include "../lib/order.h"

/* Fixed at load: the verifier sees it as constants. */
volatile const struct settings loaded = {};

/* Without a use that outlives the compiler, these types would not be in the
 * type information from which Go takes them. */
const enum outcome *unused_outcome __attribute__((unused));
const enum agreement *unused_agreement __attribute__((unused));
const enum scheduler *unused_scheduler __attribute__((unused));
const enum mode *unused_mode __attribute__((unused));
const enum service_kind *unused_service_kind __attribute__((unused));
const enum service_flag *unused_service_flag __attribute__((unused));
const enum slot_bits *unused_slot_bits __attribute__((unused));
const enum no_service *unused_no_service __attribute__((unused));
const enum refusal *unused_refusal __attribute__((unused));
const enum turn_tracked *unused_turn_tracked __attribute__((unused));
const enum flow_state *unused_flow_state __attribute__((unused));
const enum return_table *unused_return_table __attribute__((unused));
const enum route_cache *unused_route_cache __attribute__((unused));
const enum hop_flag *unused_hop_flag __attribute__((unused));
const enum hop_table *unused_hop_table __attribute__((unused));
const enum mirror_table *unused_mirror_table __attribute__((unused));
const enum mirror_state *unused_mirror_state __attribute__((unused));
const enum flow_table *unused_flow_table __attribute__((unused));
const enum prefix_verdict *unused_prefix_verdict __attribute__((unused));
const enum host_table *unused_host_table __attribute__((unused));
const struct host *unused_host __attribute__((unused));
const struct head *unused_head __attribute__((unused));
const struct backend *unused_backend __attribute__((unused));
const struct service_slot4 *unused_service_slot4 __attribute__((unused));
const struct service_slot6 *unused_service_slot6 __attribute__((unused));
const struct endpoint_slot4 *unused_endpoint_slot4 __attribute__((unused));
const struct endpoint_slot6 *unused_endpoint_slot6 __attribute__((unused));

/* These wrap around at the end of their tables. */
static __always_inline struct service_slot4 *service4_at(void *generation, __u32 at)
{
	return (struct service_slot4 *)(generation + loaded.services4.at) +
	       (at & loaded.services4.mask);
}

static __always_inline struct service_slot6 *service6_at(void *generation, __u32 at)
{
	return (struct service_slot6 *)(generation + loaded.services6.at) +
	       (at & loaded.services6.mask);
}

static __always_inline struct endpoint_slot4 *endpoint4_at(void *generation, __u32 at)
{
	return (struct endpoint_slot4 *)(generation + loaded.endpoints4.at) +
	       (at & loaded.endpoints4.mask);
}

static __always_inline struct endpoint_slot6 *endpoint6_at(void *generation, __u32 at)
{
	return (struct endpoint_slot6 *)(generation + loaded.endpoints6.at) +
	       (at & loaded.endpoints6.mask);
}

/* WITHIN reports whether an index is below a count. It is compared here, in the register that the index is used from
 * afterwards: where the compiler compared a copy, or keeps the index on the stack meanwhile, verifiers of Linux 6.1
 * would not know that the used value is the compared one. */
#define WITHIN(index, count)                                                        \
	({                                                                          \
		__label__ beyond;                                                   \
		bool within = false;                                                \
		asm volatile goto("if %0 >= %1 goto %l3"                            \
				  : "+r"(index)                                     \
				  : "r"((__u64)(count))                             \
				  :                                                 \
				  : beyond);                                        \
		within = true;                                                      \
beyond:;                                                                            \
		within;                                                             \
	})

/* The others return NULL beyond the end. Where there are no elements, older verifiers need an explicit test against 0:
 * of "index >= 0" they follow both branches. */
static __always_inline __u16 *slot_at(void *generation, __u64 slot)
{
	__u64 count = loaded.table_slots;

	if (!count || !WITHIN(slot, count))
		return NULL;
	return (__u16 *)(generation + loaded.table) + slot;
}

static __always_inline struct backend *member_at(void *generation, __u64 member)
{
	__u64 count = loaded.members_count;

	if (!count || !WITHIN(member, count))
		return NULL;
	return (struct backend *)(generation + loaded.members) + member;
}

static __always_inline __u64 hosts_count(void)
{
	return (__u64)loaded.members_count * (LINE_SLOTS / HOST_SLOTS);
}

/* host_at counts in hosts from where slots and members begin; `count` is hosts_count(). */
static __always_inline struct host *host_at(void *generation, __u64 at, __u64 count)
{
	if (!count || !WITHIN(at, count))
		return NULL;
	return (struct host *)(generation + loaded.members) + at;
}

static __always_inline struct backend *row_at(void *generation, __u64 index)
{
	__u64 count = loaded.backends_count;

	if (!count || !WITHIN(index, count))
		return NULL;
	return (struct backend *)(generation + loaded.backends) + index;
}

/* backend_at returns the present values of the backend under an index. */
static __always_inline struct backend *backend_at(void *generation, __u64 index)
{
	struct backend *row = row_at(generation, index);

	if (row && row->next)
		row = row_at(generation, (__u64)loaded.backends_indices + row->next - 1);
	return row;
}

static __always_inline __u32 clock_of(void *generation)
{
	return head_of(generation)->clock;
}

/* is_weak is a constant to the verifier, as has_mode() is: see ../lib/order.h. */
static __always_inline bool is_weak(void) { return loaded.weak; }

/* address_or_null is an address, NULL where it is all zeros. */
static __always_inline __be32 *address_or_null(__be32 *address)
{
	return address[0] | address[1] | address[2] | address[3] ? address : NULL;
}

/* pool_at returns an address of full NAT's pool; NULL where the number has none any more. */
static __always_inline __be32 *pool_at(void *generation, bool ipv6, __u64 at)
{
	__u32 count = ipv6 ? loaded.pool6_count : loaded.pool4_count;

	if (!count || !WITHIN(at, count))
		return NULL;
	return address_or_null(generation + (ipv6 ? loaded.pool6 : loaded.pool4) + 16 * at);
}

/* own_at returns the number of an address of the pool that new flows get ports of. */
static __always_inline __u32 *own_at(void *generation, bool ipv6, __u64 at)
{
	__u32 count = ipv6 ? loaded.own6_count : loaded.own4_count;

	if (!count || !WITHIN(at, count))
		return NULL;
	return generation + (ipv6 ? loaded.own6 : loaded.own4) + 4 * at;
}

/* has_mode is a constant to the verifier: code for modes that no service has is
 * not in the loaded program. */
static __always_inline bool has_mode(enum mode mode)
{
	return loaded.modes & (1U << mode);
}

/* has_scheduler is the same for schedulers. */
static __always_inline bool has_scheduler(enum scheduler scheduler)
{
	return loaded.schedulers & (1U << scheduler);
}

/* has_hairpins is a constant to the verifier, too. */
static __always_inline bool has_hairpins(void) { return loaded.hairpins; }

/* has_returns reports whether replies of a service pass here: otherwise the code that sends replies is not in the
 * loaded program. */
static __always_inline bool has_returns(void)
{
	return has_mode(MODE_NAT) || has_mode(MODE_FULLNAT) || has_hairpins();
}

/* source_at returns the source address of a flow of full NAT to a backend, by its number; NULL where there is no such
 * address. */
static __always_inline __be32 *source_at(void *generation, struct backend *backend, __u32 number)
{
	if (!has_hairpins() || number != POOL_LOCAL)
		return pool_at(generation, backend->ipv6, number);
	return address_or_null(backend->local);
}

/* has_rewrites reports whether a service has a mode that changes more of a packet than its MAC addresses. Without one,
 * the code for that is not in the loaded program. */
static __always_inline bool has_rewrites(void)
{
	return loaded.modes & ~(1U << MODE_L2DSR);
}

/* Shared by all generations. */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct backend_count);
} backend_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OUTCOME_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} outcomes SEC(".maps");

/* turns, by service id, and loads, by backend index, are written by the control plane
 * too. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct turn);
} turns SEC(".maps");

/* turn_of takes a copy: to Linux 6.1 a field of an argument is no key. */
static __always_inline struct turn *turn_of(__u32 id)
{
	return bpf_map_lookup_elem(&turns, &id);
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct backend_load);
} loads SEC(".maps");

/* flows has the proven flows, and newcomers the unproven ones, whose source may be spoofed: these take no room from
 * proven ones. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct flow_bucket);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct flow_bucket);
} newcomers SEC(".maps");

/* returns finds full-NAT flows by the 5-tuple of their replies. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct return_bucket);
} returns SEC(".maps");

/* ways is the cache of replies' routes, by a hash of their source and destination; of two that collide, the later one
 * stays. (It is pinned by this name.) */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_entry);
} ways SEC(".maps");

/* reply_hops has the neighbours that replies were sent to, by a hash of their address and interface; of two that
 * collide, the later one stays. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reply_hop);
} reply_hops SEC(".maps");

/* reply_routes and reply_blocks mirror the kernel's routes: written by the control plane. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct mirror);
} reply_routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct mirror_block);
} reply_blocks SEC(".maps");

/* prefixes has lists of prefixes, with an enum prefix_verdict each. An element's memory is allocated when it is
 * made. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1 << 23);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix_key);
	__type(value, __u32);
} prefixes SEC(".maps");

/* fragments has the outcome of fragmented datagrams' first fragments, for some seconds. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
} fragments SEC(".maps");

/* allowances bounds the answers that are made. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct allowance);
} allowances SEC(".maps");
