// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// DefaultDir is the state directory; a reboot empties /run, and resets the settings that its journals list.
const DefaultDir = "/run/jeoul"

// Errors that a caller may test for.
var (
	// ErrBusy means that another live process holds the same name in this
	// network namespace.
	ErrBusy = errors.New("already running in this network namespace")
	// ErrNoRights means that the kernel refused for lack of root or CAP_NET_ADMIN.
	ErrNoRights = errors.New("not permitted: run as root or with CAP_NET_ADMIN")
	// ErrNoLink means that there is no interface of that name.
	ErrNoLink = errors.New("no such interface")
	// ErrCorrupt means that a journal cannot be understood, and so not undone.
	ErrCorrupt = errors.New("journal is damaged")
)

// stateDirHint is the remedy for an unusable state directory.
const stateDirHint = "make it writable, or choose another state directory"

// errClosed is a programming error of the caller.
var errClosed = errors.New("used after Close")

// JournalSuffix is the suffix of a journal's file, NAME-NETNS.journal: NETNS is the inode of the network namespace.
const JournalSuffix = ".journal"

// wrapRights wraps an error for lack of rights in ErrNoRights.
func wrapRights(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w (%w)", ErrNoRights, err)
	}
	return err
}
