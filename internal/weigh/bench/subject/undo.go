// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"errors"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Undo has the functions that undo a subject's set-up, in the order of the set-up.
type Undo []func() error

// On makes a change, and records how to undo it.
func (u *Undo) On(change func(on bool) error) error {
	*u = append(*u, func() error { return change(false) })
	return change(true)
}

// Rewriting sets a laboratory up for a balancer in the kernel that rewrites addresses: the balancer forwards, the
// servers' replies pass it, and it has the VIP.
func (u *Undo) Rewriting(l *lab.Lab) error {
	return errors.Join(
		u.On(l.Forward),
		u.On(l.DetourReplies),
		u.On(func(on bool) error { return OwnVIP(l, on) }),
	)
}

// All undoes everything, the last change first. Changes that ended with their laboratory need no undoing.
func (u *Undo) All() error {
	var errs []error
	for _, back := range slices.Backward(*u) {
		if err := back(); !errors.Is(err, lab.ErrClosed) {
			errs = append(errs, err)
		}
	}
	*u = nil
	return errors.Join(errs...)
}
