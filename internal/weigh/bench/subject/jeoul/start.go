// SPDX-License-Identifier: Apache-2.0

package jeoul

import (
	"context"
	"errors"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// Start starts the daemon on the balancer, or one on each of several balancers.
func (s jeoul) Start(ctx context.Context, setup subject.Setup, params subject.Params) (subject.Running, error) {
	if setup.Lab.Router != nil && setup.At == nil {
		return s.startSeveral(ctx, setup, params)
	}
	running := &runningJeoul{subject: s, setup: setup, params: params, weights: setup.Services[0].Weights}
	if err := s.start(ctx, running); err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}
