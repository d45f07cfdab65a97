// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"fmt"
	"syscall"
)

// Restarting is a running subject whose process can end and begin again while connections go
// through it. What it has set up besides (addresses, rules) stays meanwhile.
type Restarting interface {
	Changing
	// Restart ends the process as a service manager does that restarts it, starts another
	// one, and returns when that serves.
	Restart(ctx context.Context) error
	// End ends the process for good, as a service manager does that stops it, and returns when
	// it is gone.
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

// CanUpgrade says whether what s starts is Upgrading.
func CanUpgrade(s Subject) bool {
	_, is := s.(jeoul)
	return is
}

// CanRestart says whether what s starts is Restarting.
func CanRestart(s Subject) bool {
	switch s.(type) {
	case haproxyTCP, nginxStream, keepalived, jeoul:
		return true
	}
	return false
}

// Restart stops the proxy (SIGTERM) and starts another one, by the configuration as it is.
func (r *runningProxy) Restart(ctx context.Context) error {
	if err := r.End(ctx); err != nil {
		return err
	}
	return r.Begin(ctx)
}

// End ends the proxy's processes (SIGTERM).
func (r *runningProxy) End(ctx context.Context) error { return r.Quiesce(ctx) }

// Kill ends the proxy's processes, those included that only carry on with connections from
// before a reload.
func (r *runningProxy) Kill(ctx context.Context) error {
	for _, p := range append(r.retired, r.process) {
		if err := p.process.Kill(ctx); err != nil {
			return err
		}
	}
	r.retired = nil
	return nil
}

// Begin starts the proxy, and returns when it listens.
func (r *runningProxy) Begin(ctx context.Context) (err error) {
	r.process, err = startProgram(ctx, r.setup.Lab.Balancer, r.path, r.args...)
	if err != nil {
		return err
	}
	return r.listens(ctx)
}

// Restart ends the daemon by the signal that leaves its work to the next (SIGUSR2), and starts
// that, as `systemctl restart` does with the unit of docs/guides/restart.md.
func (r *runningJeoul) Restart(ctx context.Context) error {
	if err := r.process.process.Signal(syscall.SIGUSR2); err != nil {
		return fmt.Errorf("restarting jeoul: %w", err)
	}
	select {
	case <-r.process.process.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return r.Begin(ctx)
}

// Upgrade restarts the daemon as the other build, or, where that runs, as the first one.
func (r *runningJeoul) Upgrade(ctx context.Context) error {
	if r.setup.Other == "" || r.setup.balancer().Far() {
		return fmt.Errorf("%w: upgrades need another build here: `make other`, and `--other bin/jeoul-other`",
			ErrCannot)
	}
	r.upgraded = !r.upgraded
	return r.Restart(ctx)
}

// executable is the file of the build that is to run.
func (r *runningJeoul) executable() string {
	if r.upgraded {
		return r.setup.Other
	}
	return r.setup.balancer().Executable(r.setup.Executable)
}

// End ends the daemon, which takes everything back (SIGTERM).
func (r *runningJeoul) End(ctx context.Context) error { return r.process.stop(ctx) }

// Kill ends the daemon.
func (r *runningJeoul) Kill(ctx context.Context) error { return r.process.process.Kill(ctx) }

// Begin starts the daemon, and returns when it shows every backend up.
func (r *runningJeoul) Begin(ctx context.Context) error { return r.subject.begin(ctx, r) }

// Restart stops keepalived (SIGTERM), which takes its services out of the kernel's table, and starts another one.
func (r *runningKeepalived) Restart(ctx context.Context) error {
	if err := r.End(ctx); err != nil {
		return err
	}
	return r.Begin(ctx)
}

// End ends keepalived (SIGTERM).
func (r *runningKeepalived) End(ctx context.Context) error { return r.process.stop(ctx) }

// Kill ends keepalived and its process that checks at once: that would notice else, and take the services out.
func (r *runningKeepalived) Kill(ctx context.Context) error { return r.process.process.Kill(ctx) }

// Begin starts keepalived, and returns when the kernel has all servers.
func (r *runningKeepalived) Begin(ctx context.Context) error { return r.begin(ctx) }
