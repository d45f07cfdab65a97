// SPDX-License-Identifier: Apache-2.0

package change

import (
	"context"
	"errors"
	"fmt"

	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// canRestart reports whether the subject has a process that connections may outlive.
func canRestart(t bench.Trial) bool {
	return t.Form.Lab.Balancers == 0 && t.Subject.Can().Restarts
}

// restarting returns the subject as one with a process that can end.
func (c *changeTrial) restarting() (subject.Restarting, error) {
	r, ok := c.changing.(subject.Restarting)
	if !ok {
		return nil, fmt.Errorf("%w: %s has no process to restart", subject.ErrCannot, c.trial.Subject.Name())
	}
	return r, nil
}

// restart restarts the subject's process repeatedly.
func restart(ctx context.Context, c *changeTrial) error {
	r, err := c.restarting()
	if err != nil {
		return err
	}
	for range settingsOf(c.trial.By).Restarts {
		if err := c.timed(func() error { return r.Restart(ctx) }); err != nil {
			return err
		}
		if err := clock.Sleep(ctx, reloadPause); err != nil {
			return err
		}
	}
	return nil
}

// canUpgrade reports whether another build can take over from the subject.
func canUpgrade(t bench.Trial) bool {
	return t.Form.Lab.Balancers == 0 && t.Subject.Can().Upgrades
}

// upgrade lets two builds of the subject take over from each other repeatedly.
func upgrade(ctx context.Context, c *changeTrial) error {
	u, ok := c.changing.(subject.Upgrading)
	if !ok {
		return fmt.Errorf("%w: there is no other build of %s", subject.ErrCannot, c.trial.Subject.Name())
	}
	for range settingsOf(c.trial.By).Upgrades {
		if err := c.timed(func() error { return u.Upgrade(ctx) }); err != nil {
			return err
		}
		if err := clock.Sleep(ctx, reloadPause); err != nil {
			return err
		}
	}
	return nil
}

// stopAndBegin stops the subject's process permanently, and starts another one.
func stopAndBegin(ctx context.Context, c *changeTrial) error {
	r, err := c.restarting()
	if err != nil {
		return err
	}
	return c.timed(func() error { return errors.Join(r.End(ctx), r.Begin(ctx)) })
}

// killAndBegin kills the subject's process repeatedly. Each time it starts another process after a pause without one,
// and measures how long the start takes.
func killAndBegin(ctx context.Context, c *changeTrial) error {
	r, err := c.restarting()
	if err != nil {
		return err
	}
	for range settingsOf(c.trial.By).Kills {
		if err := r.Kill(ctx); err != nil {
			return err
		}
		gone := clock.Sleep(ctx, settingsOf(c.trial.By).Dead)
		if err := errors.Join(gone, c.timed(func() error { return r.Begin(ctx) })); err != nil {
			return err
		}
		if err := clock.Sleep(ctx, reloadPause); err != nil {
			return err
		}
	}
	return nil
}
