// SPDX-License-Identifier: Apache-2.0

package libxdp

import "errors"

// Errors that callers may test for.
var (
	// ErrForeign: the program on the interface is no dispatcher of libxdp's, or its programs are not pinned where
	// libxdp pins them.
	ErrForeign = errors.New("no dispatcher of libxdp's protocol")
	// ErrVersion: the dispatcher has an unsupported version of the protocol.
	ErrVersion = errors.New("its version of libxdp's protocol is not spoken")
	// ErrUnsupported: the kernel, or the present dispatcher, cannot run our program.
	ErrUnsupported = errors.New("the dispatcher cannot have the program")
	// ErrFull: each slot of the dispatcher has a program.
	ErrFull = errors.New("the dispatcher has no slot left")
	// ErrLocked: another process holds the lock for changing a dispatcher for too long.
	ErrLocked = errors.New("another program is changing a dispatcher of libxdp's")
	// ErrRaced: the interface's program was replaced by others during each attempt.
	ErrRaced = errors.New("other programs keep changing the dispatcher")
)
