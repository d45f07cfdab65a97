// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"time"
)

// Several is a running subject of several balancers behind a router that sends to each of them a share of the
// flows. Balancers are told apart by number, from 0. Each method returns when the router has heard of it, and
// after how long.
type Several interface {
	Changing
	// Count is how many there are.
	Count() int
	// Drain takes a balancer out of the router's ways as for maintenance, and Undrain brings it back.
	Drain(ctx context.Context, n int) (time.Duration, error)
	Undrain(ctx context.Context, n int) (time.Duration, error)
	// End stops a balancer permanently, and Kill kills its daemon and its speaker (SIGKILL); Begin starts it again.
	End(ctx context.Context, n int) (time.Duration, error)
	Kill(ctx context.Context, n int) (time.Duration, error)
	Begin(ctx context.Context, n int) (time.Duration, error)
	// Cut takes a balancer's link to the router down, and Mend up.
	Cut(ctx context.Context, n int) (time.Duration, error)
	Mend(ctx context.Context, n int) (time.Duration, error)
	// Hang stops the speaker of a balancer without ending it, and Wake has it go on.
	Hang(ctx context.Context, n int) (time.Duration, error)
	Wake(ctx context.Context, n int) (time.Duration, error)
}

// Ripening is a running subject of several balancers that tell each other of connections some time after they began.
type Ripening interface {
	// Ripe is how old a connection is when the others have heard of it; 0: they never do, or at once.
	Ripe() time.Duration
}
