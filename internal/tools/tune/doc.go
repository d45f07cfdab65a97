// SPDX-License-Identifier: Apache-2.0

// Package tune compares a host's settings with a profile, changes them, and takes
// every change back.
//
// A profile is data: items, each with a setting, the value that it should have, and why. A Tuner reads the host's facts
// once, turns items into settings with wanted values, and compares. Apply writes each change into a journal, which is
// on disk before the change is made, makes it, and reads it back; Revert takes changes back in reverse, also after a
// kill. A value that another program has changed since is left, and reported.
//
// Everything happens on the calling thread: settings of the network are those of
// its network namespace, and /sys must be mounted there.
package tune

import "errors"

// Errors that callers may test for.
var (
	// ErrRole: a role is unknown.
	ErrRole = errors.New("unknown role")
	// ErrMode: a mode is unknown.
	ErrMode = errors.New("unknown mode")
	// ErrItem: the profile has no such item.
	ErrItem = errors.New("the profile has no such item")
	// ErrInterface: an interface cannot be tuned as it is.
	ErrInterface = errors.New("the interface cannot be tuned")
	// ErrBusy: another process is changing settings.
	ErrBusy = errors.New("another jeoul tune is at work here")
	// ErrJournal: the journal cannot be trusted.
	ErrJournal = errors.New("the journal of changes cannot be used")
	// ErrElsewhere: the journal is another machine's.
	ErrElsewhere = errors.New("the journal of changes is another machine's")
	// ErrNothing: there is nothing to undo.
	ErrNothing = errors.New("nothing was applied here")
	// ErrLeft: not all was done; the items and the reasons are in the report.
	ErrLeft = errors.New("not everything could be done")
)
