// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
)

// slowStarts has backends that begin to serve get more and more of their weight.
type slowStarts struct {
	*core
	health    *healthLog
	stepsTask *loop.Task
}

// advance gives the backends that are in slow start the shares that they have by now.
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

// armSteps arms the timer for the next step, and logs the slow starts that begin with a view.
func (t *slowStarts) armSteps(before, now *view.View) {
	t.health.logStarts(before, now)
	due, in := now.NextStep(time.Now())
	switch {
	case len(due) > 0:
		t.stepsTask.In(view.SlowPause)
	case in > 0:
		t.stepsTask.In(max(in, view.SlowPause))
	default:
		t.stepsTask.Off()
	}
}
