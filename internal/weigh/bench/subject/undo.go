// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"errors"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Undo is how to undo what a subject has set up, in order.
type Undo []func() error

// On switches something on, and notes how it is switched off.
func (u *Undo) On(change func(on bool) error) error {
	*u = append(*u, func() error { return change(false) })
	return change(true)
}

// Rewriting makes a laboratory ready for a balancer in the kernel that rewrites
// addresses: it forwards, the servers' replies come back through it, and it has
// the VIP.
func (u *Undo) Rewriting(l *lab.Lab) error {
	return errors.Join(
		u.On(l.Forward),
		u.On(l.DetourReplies),
		u.On(func(on bool) error { return OwnVIP(l, on) }),
	)
}

// All takes everything back, the last first. What went with its laboratory is undone already.
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
