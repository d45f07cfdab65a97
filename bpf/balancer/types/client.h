/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Clients by their address: lists of prefixes, and near clients. */
#pragma once

#include <linux/types.h>

/* prefix_key is the key of a longest-prefix match in a list. */
struct prefix_key {
	/* The prefix length: leading bits of the fields after this one. */
	__u32 bits;
	/* endpoint.exceptions, or service.clients. */
	__u32 list;
	__be32 address[4];
};

/* prefix_verdict is the verdict of a list on the addresses of a prefix. */
enum prefix_verdict {
	PREFIX_UNTRANSLATED = 1,
	PREFIX_ALLOWED,
	PREFIX_DENIED,
};

/* near4 and near6 are prefixes of near clients: addresses whose bits under the mask are these. */
struct near4 {
	__be32 address;
	__be32 mask;
};

struct near6 {
	__be32 address[4];
	__be32 mask[4];
};
