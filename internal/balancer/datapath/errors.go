// SPDX-License-Identifier: Apache-2.0

package datapath

import "errors"

// Errors that callers may test for.
var (
	// ErrNoRights: the process may not load or attach eBPF programs.
	ErrNoRights = errors.New("no right to load or attach eBPF programs")
	// ErrNoInterface: there is no such interface in this network namespace.
	ErrNoInterface = errors.New("no such interface")
	// ErrBusy: another program has our place on the interface.
	ErrBusy = errors.New("another program is attached")
	// ErrUnsupported: the kernel or the driver lacks what is needed.
	ErrUnsupported = errors.New("not supported by this kernel or driver")
	// ErrSockets: clients on this host cannot be served.
	ErrSockets = errors.New("clients on this host cannot be served")
	// ErrClosed: the datapath was closed.
	ErrClosed = errors.New("datapath is closed")
)
