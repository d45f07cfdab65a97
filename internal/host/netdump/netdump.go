// SPDX-License-Identifier: Apache-2.0

// Package netdump reads the kernel's tables (links, addresses, routes, neighbours, rules, filters) consistently.
//
// The kernel marks a netlink dump during which the table has changed (NLM_F_DUMP_INTR): it may lack entries that
// existed all the time. So such a dump is repeated.
package netdump

import (
	"context"
	"errors"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/clock"
)

// On a busy host a table may change during several consecutive dumps, so there is a growing pause between them.
// Together the pauses take some three seconds at most.
const (
	attempts = 60
	maxPause = 64 * time.Millisecond
)

// Consistent returns the list that dump reads, and calls dump again as long as the table changes during the dump. If
// that does not end, the error is netlink.ErrDumpInterrupted, and the list is the last one, which may lack entries.
func Consistent[T any](dump func() ([]T, error)) (list []T, err error) {
	pause := time.Millisecond
	for range attempts {
		if list, err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
		_ = clock.Sleep(context.Background(), pause)
		pause = min(2*pause, maxPause)
	}
	return list, err
}

// Links returns all links of the calling thread's network namespace.
func Links() ([]netlink.Link, error) { return Consistent(netlink.LinkList) }

// IsLinkMissing reports whether err says that the link asked for does not exist, and not that asking failed.
func IsLinkMissing(err error) bool {
	return errors.As(err, new(netlink.LinkNotFoundError))
}
