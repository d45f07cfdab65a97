// SPDX-License-Identifier: Apache-2.0

// Package steps makes a change of several steps whole: all of them are done, or those that were are taken back.
package steps

import (
	"errors"
	"slices"
)

// Step is one change to the host or the data plane.
type Step struct {
	Do func() error
	// Undo reverts Do; nil where no step that can fail comes after it.
	Undo func() error
}

// CarryOut does steps in order. Where one fails, those before it are taken back, the last one
// first.
func CarryOut(steps []Step) error {
	for i, s := range steps {
		err := s.Do()
		if err == nil {
			continue
		}
		for _, done := range slices.Backward(steps[:i]) {
			if done.Undo != nil {
				err = errors.Join(err, done.Undo())
			}
		}
		return err
	}
	return nil
}
