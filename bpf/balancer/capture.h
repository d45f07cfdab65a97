/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Captures: copies of forwarded packets for user space. Each capture (a live trace is one, without bytes of the frame)
 * has a slot: a filter, counters, and a ring of its own, so that one that is not read, or matches everything, does not
 * affect the others and delays no packet: a record for which its ring has no room is counted as lost. trace.h includes
 * this in the traced programs only. */
#pragma once

/* capture_filter has the conditions of a capture, all of which must hold. Addresses and ports are in network byte
 * order; an IPv4 address is in the first word. */
struct capture_filter {
	/* 0: the slot is free. Written last, and cleared first. */
	__u32 id;
	/* One packet in so many, at random; 0 is the same as 1. */
	__u32 sample;
	/* No packet is taken after this time of the monotonic clock, in nanoseconds: the process that
	 * would end the capture may be gone. */
	__u64 until;
	/* A bit for each enum outcome. */
	__u64 outcomes;
	/* The capture takes so many packets, and bytes of frames; 0: no bound. */
	__u64 most_packets;
	__u64 most_bytes;
	/* The client's address has these bits, and the VIP these, as the client sees the packet: of a
	 * reply, source and destination change places. */
	__be32 client[4];
	__be32 client_mask[4];
	__be32 vip[4];
	__be32 vip_mask[4];
	/* Of packets with ports, those with these; 0 matches any. */
	__be16 client_port;
	__be16 vip_port;
	/* An IANA number, and 4 or 6; 0 matches any. */
	__u8 protocol;
	__u8 family;
	/* Only packets of the service with one of these ids plus 1 (its hairpin has one, too), and
	 * those of its backends (capture_backends). */
	__u8 by_service;
	/* Only packets of those backends. */
	__u8 by_backend;
	__u32 services[2];
	/* The interface that packets come in on; 0: any. */
	__u32 interface;
	/* Bytes of a frame that are copied, 0 to CAPTURE_SNAP_MAX. */
	__u32 snap;
	/* Packets that are taken in a window of 2^CAPTURE_WINDOW ns; 0: no bound. */
	__u32 rate;
	/* The address and port of the service that the filter names; port 0: it names none. */
	__be16 service_port;
	__u16 pad;
	__be32 service_vip[4];
};

/* A bit of trace_notes.drawn beside those of the slots: the samples are drawn. */
#define CAPTURE_DRAWN (1U << 31)

/* Bytes of unread records, a power of two. */
#define CAPTURE_WAKEUP (1 << 17)

/* About an eighth of a second: a window's packets fit into a ring. */
#define CAPTURE_WINDOW 27

/* capture_gate has the bits of a plain packet's fields that all filters for an address family want: a packet that
 * differs in one of them matches none of the filters. Most packets beside a capture pay for this comparison only. */
struct capture_gate {
	/* The client's address, the VIP, the client's port and the service's as in the packet's header, and the protocol,
	 * each where its mask has bits. */
	__be32 client[4];
	__be32 client_mask[4];
	__be32 vip[4];
	__be32 vip_mask[4];
	__be32 ports;
	__be32 ports_mask;
	__u32 protocol;
	__u32 protocol_mask;
	/* The slot plus 1 of the only filter, if that matches each packet that passes on its way to the VIP; else 0. */
	__u32 only;
	/* 0: no filter is for the family. */
	__u32 open;
};

struct capture_slots {
	/* Slots from here on are free. */
	__u32 used;
	/* The row of gates that packets are compared with. The other one is written in the meantime. */
	__u32 gate;
	/* The gates for IPv4 and IPv6. */
	struct capture_gate gates[2][2];
	struct capture_filter slots[CAPTURES_MAX];
};

/* capture_state counts the packets that a capture's filter matched. Packets are records here: a GSO packet is one. */
struct capture_state {
	/* Packets that matched, and of these: that were taken, that were more than the rate allows, that
	 * found no room in the ring, and that were beyond the bound of packets or bytes. */
	__u64 matched;
	__u64 taken;
	__u64 limited;
	__u64 lost;
	__u64 beyond;
	/* Bytes of frames that were taken. */
	__u64 bytes;
	/* The window of time, and the packets in it. */
	__u64 window;
	__u64 in_window;
};

const enum capture_limit *unused_capture_limit __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_slots);
} capture_filters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CAPTURES_MAX);
	__type(key, __u32);
	__type(value, struct capture_state);
} capture_states SEC(".maps");

struct capture_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

/* capture_rings are the slots' rings. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, CAPTURES_MAX);
	__type(key, __u32);
	__array(values, struct capture_ring);
} capture_rings SEC(".maps");

/* capture_backends maps a backend's index to the slots, a bit for each, whose captures match its packets. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 17);
	__type(key, __u32);
	__type(value, __u32);
} capture_backends SEC(".maps");

/* capture_plain has the plain program of the interface. It is empty in a dispatcher's program, and is emptied when the
 * process ends whose map it is: the traced program then decides on all packets. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} capture_plain SEC(".maps");

/* capture_fields are the fields of a packet, as received, that filters test. An address has four words, of which IPv4
 * has the first. */
struct capture_fields {
	const __be32 *source;
	const __be32 *destination;
	__be16 source_port;
	__be16 destination_port;
	__u8 family;
	__u8 protocol;
};

/* capture_key has the same fields of a plain packet by value. */
struct capture_key {
	__be32 source[4];
	__be32 destination[4];
	__be16 source_port;
	__be16 destination_port;
	__u8 family;
	__u8 protocol;
	__u16 pad;
};

static __always_inline struct capture_slots *capture_all(void)
{
	return bpf_map_lookup_elem(&capture_filters, (const void *)&trace_zero);
}

/* capture_differs returns the bits of an address that differ from those wanted, as far as the mask has them. */
static __always_inline __be32 capture_differs(const __be32 *address, const __be32 *wanted,
					      const __be32 *mask, bool ipv6)
{
	__be32 bits = (address[0] & mask[0]) ^ wanted[0];

	if (ipv6)
		bits |= ((address[1] & mask[1]) ^ wanted[1]) | ((address[2] & mask[2]) ^ wanted[2]) |
			((address[3] & mask[3]) ^ wanted[3]);
	return bits;
}

/* capture_masked compares an address where the filter's mask has bits. */
static __always_inline bool capture_masked(const __be32 *address, const __be32 *wanted,
					   const __be32 *mask)
{
	return !capture_differs(address, wanted, mask, true);
}

/* capture_tuple compares the addresses and ports of a packet as the client sees them. */
static __always_inline bool capture_tuple(const struct capture_filter *filter, __u8 protocol,
					  const __be32 *client, __be16 client_port,
					  const __be32 *vip, __be16 vip_port)
{
	if (!capture_masked(client, filter->client, filter->client_mask) ||
	    !capture_masked(vip, filter->vip, filter->vip_mask))
		return false;
	if (!trace_has_ports(protocol) || !(client_port | vip_port))
		return true;
	return (!filter->client_port || filter->client_port == client_port) &&
	       (!filter->vip_port || filter->vip_port == vip_port);
}

/* capture_is_pooled_port says whether full NAT, or a hairpin, sends from a port in host byte order. */
static __always_inline bool capture_is_pooled_port(__u16 port)
{
	return (port >= loaded.first_port && port <= loaded.last_port) ||
	       (port >= loaded.hairpin_first_port && port <= loaded.hairpin_last_port);
}

/* capture_is_pooled says whether full NAT, or a hairpin, may have sent from the port that a packet is for. A packet
 * without ports may quote one that has. */
static __always_inline bool capture_is_pooled(const struct capture_fields *fields)
{
	__u16 port = bpf_ntohs(fields->destination_port);

	return !trace_has_ports(fields->protocol) || !port || capture_is_pooled_port(port);
}

/* capture_may_be_reply says whether a packet, as received, may be a reply that the filter matches. The client of a
 * reply of full NAT is not known yet. */
static __always_inline bool capture_may_be_reply(const struct capture_filter *filter,
						 const struct capture_fields *fields)
{
	if (has_mode(MODE_FULLNAT) && capture_is_pooled(fields))
		return true;
	return has_mode(MODE_NAT) &&
	       capture_masked(fields->destination, filter->client, filter->client_mask);
}

/* capture_may_match tests the conditions that depend on the packet as received, but for the sample. */
static __always_inline bool capture_may_match(const struct capture_filter *filter,
					      const struct capture_fields *fields)
{
	/* A filter's number is written when all else of it is there. */
	filter = READ_AFTER(is_weak(), filter, &filter->id);
	if (!filter->id || (filter->interface && filter->interface != loaded.interface) ||
	    (filter->family && filter->family != fields->family) ||
	    (filter->protocol && filter->protocol != fields->protocol))
		return false;
	return capture_tuple(filter, fields->protocol, fields->source, fields->source_port,
			     fields->destination, fields->destination_port) ||
	       capture_may_be_reply(filter, fields);
}

/* capture_may_be_service says whether a plain packet may be one of the service that the filter names: to its address,
 * or a reply. */
static __always_inline bool capture_may_be_service(const struct capture_filter *filter,
						   const struct capture_fields *fields)
{
	if (!filter->service_port)
		return true;
	return (filter->service_port == fields->destination_port &&
		same_address(filter->service_vip, fields->destination)) ||
	       capture_may_be_reply(filter, fields);
}

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

/* capture_match_slot matches a plain packet against the filter in a slot, but for the sample. It is a function of its
 * own: the verifier would carry what each comparison says of the packet through the comparisons of all other slots. */
__noinline int capture_match_slot(const struct capture_key *key, __u32 slot)
{
	const struct capture_slots *filters = capture_all();
	const struct capture_filter *filter;
	struct capture_fields fields;

	if (!filters || !key)
		return true;
	filter = &filters->slots[slot & (CAPTURES_MAX - 1)];
	fields = (struct capture_fields){
		.source = key->source,
		.destination = key->destination,
		.source_port = key->source_port,
		.destination_port = key->destination_port,
		.family = key->family,
		.protocol = key->protocol,
	};
	return capture_may_match(filter, &fields) && capture_may_be_service(filter, &fields);
}

/* capture_match_plain matches a plain packet against all filters, draws their samples, and keeps the result for
 * capture_begin(). */
static __always_inline bool capture_match_plain(const struct capture_slots *filters,
						const struct capture_key *key)
{
	struct trace_notes *notes;
	bool matches = false;

	for (__u32 i = 0; i < CAPTURES_MAX; i++) {
		if (i >= filters->used)
			break;
		if (!capture_match_slot(key, i))
			continue;
		notes = trace_current();
		if (!notes)
			return true;
		if (!capture_draw(notes, &filters->slots[i], i))
			continue;
		notes->drawn |= CAPTURE_DRAWN | 1U << i;
		matches = true;
	}
	return matches;
}

enum capture_verdict {
	/* No filter matches the packet, or no sample has it. */
	CAPTURE_NONE,
	/* A sample of a filter has the packet. */
	CAPTURE_SAMPLED,
	/* The filters must be compared one by one. */
	CAPTURE_COMPARE,
};

/* capture_draw_only draws the sample of the filter in a slot, which matches the packet as the only one. */
static __always_inline enum capture_verdict capture_draw_only(const struct capture_slots *filters,
							      __u32 slot)
{
	struct trace_notes *notes = trace_current();

	slot &= CAPTURES_MAX - 1;
	if (!notes)
		return CAPTURE_COMPARE;
	if (!capture_draw(notes, &filters->slots[slot], slot))
		return CAPTURE_NONE;
	notes->drawn = CAPTURE_DRAWN | 1U << slot;
	return CAPTURE_SAMPLED;
}

/* capture_pass compares a plain packet with what all filters have in common. `ports` has both ports as in the header:
 * filters do not compare them where both are 0. A reply goes to the client, or to a port of full NAT's. */
static __always_inline enum capture_verdict capture_pass(const struct capture_slots *filters,
							 const __be32 *source, const __be32 *destination,
							 __be32 ports, __u8 protocol, bool ipv6)
{
	const struct capture_gate *gate = &filters->gates[filters->gate & 1][ipv6];

	if (!gate->open)
		return CAPTURE_NONE;
	if (!ports)
		return CAPTURE_COMPARE;
	if (!(capture_differs(source, gate->client, gate->client_mask, ipv6) |
	      capture_differs(destination, gate->vip, gate->vip_mask, ipv6) |
	      ((ports & gate->ports_mask) ^ gate->ports) |
	      ((protocol & gate->protocol_mask) ^ gate->protocol)))
		return gate->only ? capture_draw_only(filters, gate->only - 1) : CAPTURE_COMPARE;
	if (has_mode(MODE_FULLNAT) && capture_is_pooled_port(bpf_ntohs(ports >> 16)))
		return CAPTURE_COMPARE;
	if (has_mode(MODE_NAT) && !capture_differs(destination, gate->client, gate->client_mask, ipv6))
		return CAPTURE_COMPARE;
	return CAPTURE_NONE;
}

/* capture_ports returns the ports of a plain packet (TCP or UDP without options, extension headers or fragments), and
 * NULL for another. */
static __always_inline const __be16 *capture_ports(const void *header, const void *data_end, bool ipv6)
{
	const struct iphdr *ip = header;
	const __be16 *ports = header + (ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));

	if ((const void *)(ports + 2) > data_end)
		return NULL;
	if (ipv6)
		return is_plain6(header, data_end) ? ports : NULL;
	if (!is_plain4(header, data_end) || (ip->frag_off & bpf_htons(IP_FRAGMENT_BITS)) ||
	    !trace_has_ports(ip->protocol))
		return NULL;
	return ports;
}

/* capture_match_ip compares a packet with each filter by its IP header. A packet that is not plain may match. */
static __always_inline bool capture_match_ip(ctx_t *ctx, const struct capture_slots *filters,
					     const void *header, bool ipv6)
{
	const __be16 *ports = capture_ports(header, ctx_data_end(ctx), ipv6);
	const struct ipv6hdr *ip6 = header;
	const struct iphdr *ip4 = header;
	struct capture_key key = {};

	if (!ports)
		return true;
	if (ipv6) {
		__builtin_memcpy(key.source, &ip6->saddr, sizeof(key.source));
		__builtin_memcpy(key.destination, &ip6->daddr, sizeof(key.destination));
	} else {
		key.source[0] = ip4->saddr;
		key.destination[0] = ip4->daddr;
	}
	key.protocol = ipv6 ? ip6->nexthdr : ip4->protocol;
	key.family = ipv6 ? 6 : 4;
	key.source_port = ports[0];
	key.destination_port = ports[1];
	return capture_match_plain(filters, &key);
}

/* capture_match_each says whether a filter may match a packet as received. It is a function of its own, so that the
 * verifier does not walk the program behind it once for each path through the filters. */
__noinline int capture_match_each(ctx_t *ctx)
{
	const struct capture_slots *filters = capture_all();
	const struct ethhdr *frame = ctx_data(ctx);

	if (!filters || (void *)(frame + 1) > ctx_data_end(ctx))
		return true;
	if (frame->h_proto == bpf_htons(ETH_P_IP))
		return capture_match_ip(ctx, filters, frame + 1, false);
	if (frame->h_proto == bpf_htons(ETH_P_IPV6))
		return capture_match_ip(ctx, filters, frame + 1, true);
	return true;
}

/* capture_pass_ip is capture_pass by the IP header. */
static __always_inline enum capture_verdict
capture_pass_ip(ctx_t *ctx, const struct capture_slots *filters, const void *header, bool ipv6)
{
	const __be16 *ports = capture_ports(header, ctx_data_end(ctx), ipv6);
	const struct ipv6hdr *ip6 = header;
	const struct iphdr *ip4 = header;

	if (!ports)
		return CAPTURE_COMPARE;
	if (ipv6)
		return capture_pass(filters, (const __be32 *)&ip6->saddr, (const __be32 *)&ip6->daddr,
				    *(const __be32 *)ports, ip6->nexthdr, true);
	return capture_pass(filters, &ip4->saddr, &ip4->daddr, *(const __be32 *)ports, ip4->protocol, false);
}

/* capture_pass_frame is capture_pass for a frame as received. */
static __always_inline enum capture_verdict capture_pass_frame(ctx_t *ctx)
{
	const struct capture_slots *filters = capture_all();
	const struct ethhdr *frame = ctx_data(ctx);

	if (!filters || (void *)(frame + 1) > ctx_data_end(ctx))
		return CAPTURE_COMPARE;
	if (frame->h_proto == bpf_htons(ETH_P_IP))
		return capture_pass_ip(ctx, filters, frame + 1, false);
	if (frame->h_proto == bpf_htons(ETH_P_IPV6))
		return capture_pass_ip(ctx, filters, frame + 1, true);
	return CAPTURE_COMPARE;
}

/* capture_skip hands a packet that no filter matches to the plain program, and does not return then. */
static __always_inline void capture_skip(ctx_t *ctx)
{
	enum capture_verdict verdict;

	if (dry_run())
		return;
	verdict = capture_pass_frame(ctx);
	if (verdict == CAPTURE_NONE || (verdict == CAPTURE_COMPARE && !capture_match_each(ctx)))
		bpf_tail_call(ctx, &capture_plain, 0);
}

/* capture_copy copies the first bytes of the frame, as many as the candidates need, to `to`, and returns their
 * number. */
static __always_inline __u32 capture_copy(ctx_t *ctx, const struct trace_notes *notes, void *to,
					  __u64 length)
{
	if (length > notes->snap)
		length = notes->snap;
	if (length > CAPTURE_SNAP_MAX)
		length = CAPTURE_SNAP_MAX;
	if (length < ETH_HLEN || ctx_load(ctx, 0, to, length))
		return 0;
	return length;
}

/* capture_begin finds the captures that may match the packet in the notes, and copies the frame for them as
 * received. */
__noinline int capture_begin(ctx_t *ctx)
{
	struct capture_slots *filters = capture_all();
	struct trace_notes *notes = trace_current();
	struct capture_fields fields;

	if (!filters || !notes)
		return 0;
	notes->candidates = 0;
	fields = (struct capture_fields){
		.source = notes->record.source,
		.destination = notes->record.destination,
		.source_port = notes->record.source_port,
		.destination_port = notes->record.destination_port,
		.family = notes->record.family,
		.protocol = notes->record.protocol,
	};
	for (__u32 i = 0; i < CAPTURES_MAX; i++) {
		const struct capture_filter *filter = &filters->slots[i];

		if (i >= filters->used)
			break;
		if (!capture_may_match(filter, &fields) ||
		    !(notes->drawn ? notes->drawn >> i & 1 : capture_draw(notes, filter, i)))
			continue;
		notes->candidates |= 1U << i;
		if (filter->snap > notes->snap)
			notes->snap = filter->snap;
	}
	if (notes->candidates && notes->snap) {
		notes->record.ingress_length = ctx_length(ctx);
		notes->record.ingress_captured =
			capture_copy(ctx, notes, notes->frames, notes->record.ingress_length);
	}
	return 0;
}

/* capture_of_service says whether the packet is one of the filter's service and backend. A reply is identified by the
 * backend that sent it. */
static __always_inline bool capture_of_service(const struct capture_filter *filter,
					       const struct trace_record *record, __u32 slot)
{
	__u32 service = record->service + 1, *slots;

	if (!filter->by_service && !filter->by_backend)
		return true;
	if (!filter->by_backend && service)
		return service == filter->services[0] || service == filter->services[1];
	slots = bpf_map_lookup_elem(&capture_backends, &record->backend);
	return slots && *slots & 1U << slot;
}

/* capture_matches says whether a filter matches a packet, now that its outcome is known. */
static __always_inline bool capture_matches(const struct capture_filter *filter,
					    const struct trace_record *record, __u32 slot)
{
	filter = READ_AFTER(is_weak(), filter, &filter->id);
	if (!filter->id || record->time > filter->until ||
	    !(filter->outcomes >> (record->outcome & 63) & 1))
		return false;
	if (!capture_tuple(filter, record->protocol, record->source, record->source_port,
			   record->destination, record->destination_port) &&
	    !((record->reason & TRACE_REPLY) &&
	      capture_tuple(filter, record->protocol, record->new_destination,
			    record->new_destination_port, record->new_source,
			    record->new_source_port)))
		return false;
	return capture_of_service(filter, record, slot);
}

/* capture_allows enforces the bounds of a capture. CPUs together may exceed them by a packet of each. */
static __always_inline bool capture_allows(const struct capture_filter *filter,
					   struct capture_state *state, __u64 time, __u32 bytes)
{
	__u64 window = time >> CAPTURE_WINDOW;

	if (state->window != window) {
		state->window = window;
		state->in_window = 0;
	}
	if (filter->rate && __sync_fetch_and_add(&state->in_window, 1) >= filter->rate) {
		__sync_fetch_and_add(&state->limited, 1);
		return false;
	}
	if ((filter->most_packets && state->taken >= filter->most_packets) ||
	    (filter->most_bytes && state->bytes + bytes > filter->most_bytes)) {
		__sync_fetch_and_add(&state->beyond, 1);
		return false;
	}
	return true;
}

/* capture_wakeup returns the flags of an output of `size` bytes: its reader is woken up for each CAPTURE_WAKEUP bytes
 * in the ring, and polls for less. To wake it up for each record costs more than all else of a capture. */
static __always_inline __u64 capture_wakeup(void *ring, __u64 size)
{
	__u64 unread = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);

	return (unread ^ (unread + size)) & ~(__u64)(CAPTURE_WAKEUP - 1) ? BPF_RB_FORCE_WAKEUP :
									   BPF_RB_NO_WAKEUP;
}

/* capture_put writes the record and the frames into a slot's ring. */
static __always_inline void capture_put(const struct capture_filter *filter,
					struct trace_notes *notes, __u32 slot, __u64 frames)
{
	struct capture_state *state = bpf_map_lookup_elem(&capture_states, &slot);
	void *ring = bpf_map_lookup_elem(&capture_rings, &slot);
	__u64 size = sizeof(notes->record) + frames;

	if (!state || !ring)
		return;
	__sync_fetch_and_add(&state->matched, 1);
	if (!capture_allows(filter, state, notes->record.time, frames))
		return;
	if (bpf_ringbuf_output(ring, &notes->record, size, capture_wakeup(ring, size))) {
		__sync_fetch_and_add(&state->lost, 1);
		return;
	}
	__sync_fetch_and_add(&state->taken, 1);
	__sync_fetch_and_add(&state->bytes, frames);
}

/* capture_select removes the candidates whose filters do not match. */
static __always_inline void capture_select(const struct capture_slots *filters,
					   struct trace_notes *notes)
{
	for (__u32 i = 0; i < CAPTURES_MAX; i++)
		if ((notes->candidates & 1U << i) &&
		    !capture_matches(&filters->slots[i], &notes->record, i))
			notes->candidates &= ~(1U << i);
}

/* capture_egress copies the frame as sent behind the one as received, and returns the length of both. A dropped packet
 * is not sent. */
static __always_inline __u64 capture_egress(ctx_t *ctx, struct trace_notes *notes)
{
	struct trace_record *record = &notes->record;
	__u64 ingress = record->ingress_captured, egress = 0;

	if (ingress > CAPTURE_SNAP_MAX)
		return 0;
	if (notes->snap && record->outcome < OUTCOME_DROPPED_MALFORMED)
		egress = capture_copy(ctx, notes, notes->frames + ingress, record->frame_length);
	record->egress_captured = egress;
	return ingress + egress;
}

/* capture_end writes the packet to the captures whose filters match. */
__noinline int capture_end(ctx_t *ctx, __u32 outcome)
{
	struct capture_slots *filters = capture_all();
	struct trace_notes *notes = trace_current();
	__u64 frames;

	if (!filters || !notes)
		return 0;
	/* A packet that was not parsed is as received. */
	if (!notes->record.family)
		capture_begin(ctx);
	if (!notes->candidates)
		return 0;
	trace_complete(ctx, &notes->record, outcome);
	capture_select(filters, notes);
	if (!notes->candidates)
		return 0;
	frames = capture_egress(ctx, notes);
	if (frames > 2 * CAPTURE_SNAP_MAX)
		return 0;
	for (__u32 i = 0; i < CAPTURES_MAX; i++)
		if (notes->candidates & 1U << i)
			capture_put(&filters->slots[i], notes, i, frames);
	return 0;
}
