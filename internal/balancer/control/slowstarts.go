// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
)

// slowStarts raises the share of the weight of backends that begin to serve, step by step.
type slowStarts struct {
	*core
	health    *healthLog
	stepsTask *loop.Task
}

// advance applies the steps of slow starts that are due.
func (t *slowStarts) advance() error {
	now := time.Now()
	due, _ := t.view.NextStep(now)
	if len(due) == 0 {
		return nil
	}
	if err := t.applyView(t.view.WithSteps(due, now)); err != nil {
		return fmt.Errorf("give backends in slow start a larger share: %w", err)
	}
	return nil
}

// armSteps schedules the next step, and logs the slow starts that begin with a view.
func (t *slowStarts) armSteps(before, now *view.View) {
	t.health.logStarts(before, now)
	due, in := now.NextStep(time.Now())
	switch {
	case len(due) > 0:
		t.stepsTask.Schedule(view.SlowPause)
	case in > 0:
		t.stepsTask.Schedule(max(in, view.SlowPause))
	default:
		t.stepsTask.Cancel()
	}
}
