// SPDX-License-Identifier: Apache-2.0

package subject

import "context"

// Remembering is a running subject that keeps something for each flow, and can
// tell how much that is.
type Remembering interface {
	Remembered(ctx context.Context) (Remembered, error)
}

// Remembered is the memory of a subject for its flows at a moment.
type Remembered struct {
	// The things that are counted, in words.
	What string
	// Flows is how many there are, Limit how many there can be; 0 if that is not
	// bounded, or not known.
	Flows, Limit uint64
	// Bytes is the kernel's memory for them, free places included; 0 if the subject
	// does not tell.
	Bytes uint64
}

// Tracked counts the single connections or flows that a balancer remembers.
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
