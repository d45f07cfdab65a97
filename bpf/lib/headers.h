/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The headers of a frame, and constants that their fields are compared with. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>

/* Bits of the IPv4 fragment field: more fragments, and the offset. */
#define IP_FRAGMENT_BITS 0x3fff
#define IP_OFFSET_BITS 0x1fff
#define IP_DONT_FRAGMENT 0x4000
/* The first byte of an IPv4 header without options. */
#define IPV4_PLAIN 0x45
/* Of the fragment field of IPv6's fragment header (RFC 8200 section 4.5): more
 * fragments, and the offset. */
#define IPV6_FRAGMENT_BITS 0xfff9
#define IPV6_OFFSET_BITS 0xfff8
/* A frame's tag, IEEE 802.1Q. */
#define VLAN_LENGTH 4

/* The flag byte of a TCP header, RFC 9293 section 3.1. */
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
