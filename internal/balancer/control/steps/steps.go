// SPDX-License-Identifier: Apache-2.0

// Package steps runs a change of several steps atomically: when one fails, those before it are undone.
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

// Run runs steps in order. When one fails, it undoes those before it in reverse order.
func Run(steps []Step) error {
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
