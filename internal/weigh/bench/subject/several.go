// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"time"
)

// Several is a running subject of several balancers behind a router that sends a share of the flows to each of them.
// Balancers are numbered from 0. Each method returns when the router has noticed, with the time that this took.
type Several interface {
	Changing
	// Count returns the number of balancers.
	Count() int
	// Drain removes a balancer from the router's routes as for maintenance, and Undrain adds it again.
	Drain(ctx context.Context, n int) (time.Duration, error)
	Undrain(ctx context.Context, n int) (time.Duration, error)
	// End stops a balancer, and Kill kills its daemon and its speaker (SIGKILL); Begin starts it again.
	End(ctx context.Context, n int) (time.Duration, error)
	Kill(ctx context.Context, n int) (time.Duration, error)
	Begin(ctx context.Context, n int) (time.Duration, error)
	// CutLink sets a balancer's link to the router down, and RestoreLink sets it up.
	CutLink(ctx context.Context, n int) (time.Duration, error)
	RestoreLink(ctx context.Context, n int) (time.Duration, error)
	// SuspendSpeaker suspends the speaker of a balancer without ending it (SIGSTOP), and ResumeSpeaker resumes it.
	SuspendSpeaker(ctx context.Context, n int) (time.Duration, error)
	ResumeSpeaker(ctx context.Context, n int) (time.Duration, error)
}

// HandoverDelayed is a running subject of several balancers that synchronise connections some time after they began.
type HandoverDelayed interface {
	// HandoverAge returns the age of a connection from which on the other balancers know it; 0 means never, or at once.
	HandoverAge() time.Duration
}
