// SPDX-License-Identifier: Apache-2.0

package subject

import "context"

// Remembering is a running subject that stores state for each flow, and can report how much.
type Remembering interface {
	Remembered(ctx context.Context) (Remembered, error)
}

// Remembered is the state that a subject stores for its flows at one moment.
type Remembered struct {
	// The counted things, in words.
	What string
	// Flows is their number, and Limit its upper bound; 0 if there is no bound, or if it is not known.
	Flows, Limit uint64
	// Bytes is the kernel's memory for them, including free entries; 0 if the subject does not report it.
	Bytes uint64
}

// Tracked counts the connections or flows that a balancer stores.
type Tracked struct {
	Flows uint64
	// Bytes is the memory of their tables, full or empty; 0 if it is not reported.
	Bytes uint64
}

// Tracking is a running subject that reports what it tracks at present.
type Tracking interface {
	Tracked(ctx context.Context) (Tracked, error)
}
