// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"

	"github.com/jeoul/jeoul/internal/weigh/lab/measure"
	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
)

// Errors that callers may test for.
var (
	// ErrNoRights: building a lab needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN).
	ErrNoRights = netns.ErrNoRights
	// ErrSpec: the Spec asks for something that a lab cannot be.
	ErrSpec = errors.New("impossible lab")
	// ErrClosed: the lab, and so its hosts, are gone.
	ErrClosed = errors.New("the lab is closed")
	// ErrNoSocketDestroy: this kernel cannot destroy sockets on request; TIME-WAIT must be waited for.
	ErrNoSocketDestroy = measure.ErrNoSocketDestroy
)
