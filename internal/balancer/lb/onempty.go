// SPDX-License-Identifier: Apache-2.0

package lb

import "fmt"

// OnEmpty is the policy for a VIP while no backend of its services serves.
type OnEmpty string

// The policies for a VIP without a backend.
const (
	// KeepVIP leaves it on the balancer: packets are refused as Limits.Refuse says.
	KeepVIP OnEmpty = "keep"
	// WithdrawVIP takes it off the interface, so that another balancer, or a router, can tell
	// that it is to be looked for elsewhere. All services of a VIP must say so.
	WithdrawVIP OnEmpty = "withdraw"
)

// UnmarshalText accepts "keep" and "withdraw"; anything else is ErrUnknownOnEmpty.
func (e *OnEmpty) UnmarshalText(text []byte) error {
	switch OnEmpty(text) {
	case KeepVIP, WithdrawVIP:
		*e = OnEmpty(text)
		return nil
	}
	return fmt.Errorf("%w %q: use %s or %s", ErrUnknownOnEmpty, text, KeepVIP, WithdrawVIP)
}

// DefaultPanicFor returns the threshold of Checks.Panic where the configuration has none: a service whose
// VIP is withdrawn when none of its backends is healthy must not use all of them instead.
func DefaultPanicFor(e OnEmpty) uint8 {
	if e == WithdrawVIP {
		return 0
	}
	return DefaultPanic
}
