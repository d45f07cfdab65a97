// SPDX-License-Identifier: Apache-2.0

// Package tune compares a host's settings with a profile, changes them, and can undo every change.
//
// A profile is data: items, each with a setting, its wanted value, and the reason. A Tuner reads the host's facts once,
// expands the items to settings with wanted values, and compares. Apply writes each change to the journal on disk,
// makes it, and reads it back. Revert undoes changes in reverse order, also after a kill. It leaves and reports a value
// that another program has changed since.
//
// Everything happens on the calling thread. Network settings are those of the thread's network namespace, and /sys must
// be mounted there.
package tune

import "errors"

// Errors that callers may test for.
var (
	// ErrRole means that a role is unknown.
	ErrRole = errors.New("unknown role")
	// ErrMode means that a mode is unknown.
	ErrMode = errors.New("unknown mode")
	// ErrItem means that the profile has no such item.
	ErrItem = errors.New("the profile has no such item")
	// ErrInterface means that an interface cannot be tuned in its present state.
	ErrInterface = errors.New("the interface cannot be tuned")
	// ErrBusy means that another process is changing settings.
	ErrBusy = errors.New("another jeoul tune is at work here")
	// ErrJournal means that the journal is not valid.
	ErrJournal = errors.New("the journal of changes cannot be used")
	// ErrElsewhere means that the journal is another machine's.
	ErrElsewhere = errors.New("the journal of changes is another machine's")
	// ErrNothing means that there is nothing to undo.
	ErrNothing = errors.New("nothing was applied here")
	// ErrLeft means that something could not be done. The report has the items and the reasons.
	ErrLeft = errors.New("not everything could be done")
)
