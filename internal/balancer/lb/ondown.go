// SPDX-License-Identifier: Apache-2.0

package lb

import "fmt"

// OnDown is the policy for flows of a backend whose health checks fail.
type OnDown string

// The policies for flows of a failed backend.
const (
	// KeepFlows leaves them where they are: their packets are sent to the backend as before.
	KeepFlows OnDown = "keep"
	// ResetFlows ends them: their next packet is answered by a reset (RFC 9293 section
	// 3.10.7.1), so that the client connects again, to another backend. TCP only.
	ResetFlows OnDown = "reset"
	// MoveFlows gives them to other backends, like new flows. UDP only.
	MoveFlows OnDown = "move"
)

// UnmarshalText accepts "keep", "reset" and "move"; anything else is ErrUnknownOnDown.
func (d *OnDown) UnmarshalText(text []byte) error {
	switch OnDown(text) {
	case KeepFlows, ResetFlows, MoveFlows:
		*d = OnDown(text)
		return nil
	}
	return fmt.Errorf("%w %q: use %s, %s or %s", ErrUnknownOnDown, text, KeepFlows, ResetFlows, MoveFlows)
}

// Keeps reports whether a backend whose checks fail goes on with the flows that it has. Empty stands for KeepFlows.
func (d OnDown) Keeps() bool { return d == "" || d == KeepFlows }
