/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maximum segment size that a SYN announces (RFC 9293 section 3.7.1). */
#pragma once

#include "../parse.h"

#define TCP_OPTION_END 0
#define TCP_OPTION_NOP 1
#define TCP_OPTION_MSS 2
#define TCP_OPTION_MSS_LENGTH 4
/* The number of options that are parsed: the MSS is the first option of nearly every SYN. */
#define MSS_MAX_OPTIONS 8
/* The maximum length of a TCP header, in bytes. */
#define TCP_MAX_HEADER 60

/* find_mss returns the offset of the MSS option's value in the frame, or 0. */
static __always_inline __u32 find_mss(void *data, void *data_end, __u32 transport)
{
	struct tcphdr *tcp = data + transport;
	__u32 at = sizeof(*tcp), end;

	if ((void *)(tcp + 1) > data_end)
		return 0;
	end = tcp->doff * 4;
	for (int i = 0; i < MSS_MAX_OPTIONS; i++) {
		__u8 *option = data + transport + at;

		if (at >= end || at > TCP_MAX_HEADER || (void *)(option + 1) > data_end ||
		    *option == TCP_OPTION_END)
			return 0;
		if (*option == TCP_OPTION_NOP) {
			at++;
			continue;
		}
		if ((void *)(option + 2) > data_end || option[1] < 2 || at + option[1] > end)
			return 0;
		if (*option == TCP_OPTION_MSS && option[1] == TCP_OPTION_MSS_LENGTH)
			return transport + at + 2;
		at += option[1];
	}
	return 0;
}

/* clamp_mss lowers the MSS of a SYN to `mss`. An option may begin at an odd offset; then its bytes count swapped in the
 * checksum. */
__noinline int clamp_mss(ctx_t *ctx, const struct packet *packet, __u32 mss)
{
	if (!packet)
		return 0;
	void *data = ctx_data(ctx), *data_end = ctx_data_end(ctx);
	__u32 transport = (packet->network & 0xff) + (packet->transport & OFFSET_MASK);
	__u32 at = find_mss(data, data_end, transport), was;
	__u8 *value = data + (at & 0xffff);
	__u64 change;

	if (!at || (void *)(value + 2) > data_end)
		return 0;
	was = value[0] << 8 | value[1];
	if (was <= mss)
		return 0;
	value[0] = mss >> 8;
	value[1] = mss;
	change = (at - transport) & 1 ?
			 checksum_change16(bpf_htons((was << 8 | was >> 8) & 0xffff),
					   bpf_htons((mss << 8 | mss >> 8) & 0xffff)) :
			 checksum_change16(bpf_htons(was), bpf_htons(mss));
	ctx_fix_l4(ctx, transport + offsetof(struct tcphdr, check), 0, change, false);
	return 0;
}
