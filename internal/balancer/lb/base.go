// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"net/netip"
	"time"
)

// Base is the hash table that a service had before the first change of a transition. During the transition, packets
// whose flow is not remembered go by it. Base has the table's inputs, so that another balancer can build the same one.
type Base struct {
	Service ServiceKey
	// BySource: slots are of the client's address alone.
	BySource  bool
	Scheduler Scheduler
	// Size is how many slots there are, a prime; 0 where the table is gone, and flows of slots that have
	// changed hands are remembered yet.
	Size uint32
	// Backends are the backends that the table was made of, in their order.
	Backends []BaseBackend
	// Beyond: flows are remembered of other slots, too, than those that differ from the present table.
	Beyond bool
	// Moved is a digest of the slots of which flows are remembered: two balancers that have equal ones remember flows
	// of the same.
	Moved uint64
	// Age is how long ago the transition began, and Left in how long it ends unless there is another change.
	Age, Left time.Duration
}

// BaseBackend is one of the backends that a table was made of.
type BaseBackend struct {
	// Identity is the backend's key in the table, and Endpoint its address and port; they differ in the port where
	// slots are of the client's address alone.
	Identity, Endpoint netip.AddrPort
	// Share is its share of the table of all, and Weight that of new flows.
	Share, Weight uint32
	// Absent: it took no new flows; Endpoint and Weight are zero.
	Absent bool
}
