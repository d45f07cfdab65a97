// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"

	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// ErrCannot means that a subject does not support the requested change; the error gives the reason.
var ErrCannot = errors.New(results.NotPossible)

// Changing is a running subject whose servers can be changed while it carries connections, by the methods that its own
// documentation recommends.
type Changing interface {
	Running
	// Change makes the subject balance services, and returns when new connections follow the change. The ports stay the
	// same; servers and their weights may differ. An error that wraps ErrCannot means that nothing has changed.
	Change(ctx context.Context, services []Service) error
	// Reload makes the subject read its unchanged configuration again, and returns when it has done so.
	Reload(ctx context.Context) error
	// PIDs returns the subject's processes, including those that only continue connections from before a reload.
	PIDs() []int
	// ChangeMethod describes how the subject makes these changes.
	ChangeMethod() string
}

// Checking is a running subject that shows the results of its health checks.
type Checking interface {
	// Serves reports whether the server gets new connections, as far as health checks decide that.
	Serves(ctx context.Context, server *lab.Host) (bool, error)
}

// ShowingChecks is a running subject whose health checks may begin some time after it has started.
type ShowingChecks interface {
	// Passes reports whether the server has passed its checks in every service.
	Passes(ctx context.Context, server *lab.Host) (bool, error)
}

// Noticing is a running subject that shows whether it has noticed that a server is unreachable. Other subjects keep
// sending to a host that is gone.
type Noticing interface {
	// Reaches reports whether the subject sends packets to a server, by its own status.
	Reaches(ctx context.Context, server *lab.Host) (bool, error)
}

// Restarting is a running subject whose process can end and start again while connections pass through it. Its other
// set-up (addresses, rules) stays in place.
type Restarting interface {
	Changing
	// Restart ends the process as a service manager does for a restart, starts another one, and returns when that
	// serves.
	Restart(ctx context.Context) error
	// End stops the process permanently, as a service manager does, and returns when the process is gone.
	End(ctx context.Context) error
	// Kill ends the process as a crash does (SIGKILL), and returns when the process is gone.
	Kill(ctx context.Context) error
	// Begin starts a process after End or Kill, and returns when the process serves.
	Begin(ctx context.Context) error
}

// Upgrading is a running subject that another build can take over from.
type Upgrading interface {
	Restarting
	// Upgrade restarts the process as the other one of two builds. The error is ErrCannot if there is no other build.
	Upgrade(ctx context.Context) error
}
