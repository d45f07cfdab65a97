// SPDX-License-Identifier: Apache-2.0

package members

import "errors"

// Errors that callers may test for.
var (
	// ErrKey: a file is no key of members.
	ErrKey = errors.New("no key of members")
	// ErrDisconnects: the other keys would disconnect a member that is reached now.
	ErrDisconnects = errors.New("a member would be cut off")
)

var (
	// errNoPeer: an address is not under peers.
	errNoPeer = errors.New("its address is not under members.peers")
	// errEnded: a process has ended.
	errEnded = errors.New("it has ended")
	// errState: a text is no state of a member, or no greeting.
	errState = errors.New("no state of a member")
)
