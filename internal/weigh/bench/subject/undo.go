// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"errors"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// undo is how to take back what a subject has set up, in order.
type undo []func() error

// on switches something on, and notes how it is switched off.
func (u *undo) on(change func(on bool) error) error {
	*u = append(*u, func() error { return change(false) })
	return change(true)
}

// rewriting makes a laboratory ready for a balancer in the kernel that rewrites
// addresses: it forwards, the servers' replies come back through it, and it has
// the VIP.
func (u *undo) rewriting(l *lab.Lab) error {
	return errors.Join(
		u.on(l.Forward),
		u.on(l.DetourReplies),
		u.on(func(on bool) error { return ownVIP(l, on) }),
	)
}

// all takes everything back, the last first. What went with its laboratory is
// taken back already.
func (u *undo) all() error {
	var errs []error
	for _, back := range slices.Backward(*u) {
		if err := back(); !errors.Is(err, lab.ErrClosed) {
			errs = append(errs, err)
		}
	}
	*u = nil
	return errors.Join(errs...)
}
