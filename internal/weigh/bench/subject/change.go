// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// ErrCannot means that a subject does not support the requested change; the error gives the reason.
var ErrCannot = errors.New("not possible with this subject")

// Changing is a running subject whose servers can be changed while it carries
// connections, by the ways that its own documentation recommends.
type Changing interface {
	Running
	// Change makes services those that the subject balances, and returns when new
	// connections go by it. The ports stay what they are; servers and their weights
	// may differ. An error that wraps ErrCannot has changed nothing.
	Change(ctx context.Context, services []Service) error
	// Reload has the subject read its configuration again, unchanged, and returns
	// when it has.
	Reload(ctx context.Context) error
	// PIDs are those of the subject's processes, those included that only carry
	// on with connections from before a reload.
	PIDs() []int
	// ChangeMethod describes how the subject carries out changes, reloads and restarts, for the notes of a run.
	ChangeMethod() string
}

// Checking is a running subject that shows what its health checks have found.
type Checking interface {
	// Serves reports whether the server gets new connections, as far as health checks decide it.
	Serves(ctx context.Context, server *lab.Host) (bool, error)
}

// ShowingChecks is a running subject whose health checks may begin some time after it is up.
type ShowingChecks interface {
	// Passes reports whether the server has passed its checks in every service.
	Passes(ctx context.Context, server *lab.Host) (bool, error)
}

// Noticing is a running subject that can tell whether it knows that a server cannot be
// reached. One that is not Noticing sends on to a host that is gone.
type Noticing interface {
	// Reaches reports whether it sends packets to a server, by what it shows of itself.
	Reaches(ctx context.Context, server *lab.Host) (bool, error)
}

// Restarting is a running subject whose process can end and begin again while connections go
// through it. What it has set up besides (addresses, rules) stays meanwhile.
type Restarting interface {
	Changing
	// Restart ends the process as a service manager does that restarts it, starts another
	// one, and returns when that serves.
	Restart(ctx context.Context) error
	// End ends the process permanently, as a service manager does that stops it, and returns when it is gone.
	End(ctx context.Context) error
	// Kill ends the process as a crash does (SIGKILL), and returns when it is gone.
	Kill(ctx context.Context) error
	// Begin starts a process after End or Kill, and returns when it serves.
	Begin(ctx context.Context) error
}

// Upgrading is a running subject that another build of it can take over from.
type Upgrading interface {
	Restarting
	// Upgrade restarts the process as the other one of two builds. ErrCannot: there is no other.
	Upgrade(ctx context.Context) error
}
