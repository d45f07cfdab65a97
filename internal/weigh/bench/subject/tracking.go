// SPDX-License-Identifier: Apache-2.0

package subject

import "context"

// Tracked is what a balancer remembers of single connections or flows.
type Tracked struct {
	Flows uint64
	// Bytes is the memory of the tables that they are in, full or empty; 0 where
	// that is not told.
	Bytes uint64
}

// Tracking is a running subject that says what it tracks now.
type Tracking interface {
	Tracked(ctx context.Context) (Tracked, error)
}
