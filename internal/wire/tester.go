// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
)

// Tester has its programs on its ports.
type Tester struct{ spec Spec }

// New attaches a tester's programs to its ports. It is to be closed.
func New(ctx context.Context, spec Spec) (*Tester, error) {
	return nil, errors.ErrUnsupported
}

// Run runs a load, and calls done after each step, if it is not nil. It returns the
// steps until an error; ErrInterrupted, where ctx has ended. One load at a time.
func (t *Tester) Run(ctx context.Context, load Load, done func(Step)) ([]Step, error) {
	return nil, errors.ErrUnsupported
}

// Close takes the programs off the ports.
func (t *Tester) Close() error { return nil }
