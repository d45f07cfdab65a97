// SPDX-License-Identifier: Apache-2.0

package lb

import "net/netip"

// ReplyHop is a neighbour that the data plane sends replies to by the kernel's routes (modes nat and fullnat): the
// client itself, or the router before it.
type ReplyHop struct {
	Interface int // its index
	Address   netip.Addr
	Router    bool
}
