// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"errors"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// ErrNoTerminal means that there is nothing to draw on.
var ErrNoTerminal = errors.New("standard output is not a terminal; `jeoul top --once` prints the figures once")

// Balancer is a running balancer.
type Balancer interface {
	// Status reads its state and counters.
	Status(ctx context.Context) (*ops.Status, error)
	// Operate changes it. Error: nothing was changed.
	Operate(ctx context.Context, order ops.Order) (*ops.Operation, error)
	// Describe returns all about a service, or about one of its backends, as text.
	Describe(ctx context.Context, service, backend string) (string, error)
}

// Options are the parts and settings of the display.
type Options struct {
	Balancer Balancer
	// At is where the balancer is: the path of its socket, or its URL.
	At string
	// View is shown first.
	View View
	// Sort is the title of the column that the view is sorted by; empty: its own order. Filter selects rows.
	Sort, Filter string
	// Interval is the time between two readings.
	Interval time.Duration
	// All shows kinds of drops that no packet met, too.
	All bool
	// ReadOnly refuses every operation.
	ReadOnly bool
	// ASCII restricts the screen to ASCII, for terminals without UTF-8.
	ASCII bool
	// Now is the clock.
	Now func() time.Time
}
