// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/localsockets"
)

// Errors that callers may test for.
var (
	// ErrNoRights: the process may not load or attach eBPF programs.
	ErrNoRights = attach.ErrNoRights
	// ErrNoInterface: there is no such interface in this network namespace.
	ErrNoInterface = attach.ErrNoInterface
	// ErrBusy: another program is attached to the interface where ours would be.
	ErrBusy = attach.ErrBusy
	// ErrUnsupported: the kernel or the driver lacks a needed capability.
	ErrUnsupported = attach.ErrUnsupported
	// ErrSockets: clients on this host cannot be served.
	ErrSockets = localsockets.ErrNotServed
	// ErrClosed: the datapath was closed.
	ErrClosed = errors.New("datapath is closed")
)
