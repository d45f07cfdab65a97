// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"time"
)

// Persistence sends all flows of a client to the backend that its first one got.
type Persistence struct {
	// Timeout is how long a client is remembered after its last flow began; 0: there is
	// no persistence.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
	// Prefix is how many leading bits of the address tell clients apart: 1..32, or
	// ..128 for IPv6.
	Prefix uint8 `json:"prefix,omitempty"`
	// Group names the services that send a client to one host, which each of them knows
	// by its address; empty: the service shares with no other.
	Group string `json:"group,omitempty"`
}

// On reports whether the service has persistence.
func (p Persistence) On() bool { return p.Timeout > 0 }

// Refusal is the treatment of packets that cannot be sent on: a limit refuses them, or there is no backend, flow, port
// or room for them.
type Refusal string

// The refusals.
const (
	// RefuseByDrop says nothing: the client tries again after a while (a second at
	// first, RFC 6298 section 2), by when there may be room.
	RefuseByDrop Refusal = "drop"
	// RefuseByReset answers as a host on which nothing listens, so that the client knows at
	// once: TCP by a reset (RFC 9293 section 3.10.7.1), UDP by an ICMP error "port
	// unreachable" (RFC 792, RFC 4443).
	RefuseByReset Refusal = "reset"
)

// UnmarshalText accepts "drop" and "reset"; anything else is ErrUnknownRefusal.
func (r *Refusal) UnmarshalText(text []byte) error {
	switch Refusal(text) {
	case RefuseByDrop, RefuseByReset:
		*r = Refusal(text)
		return nil
	}
	return fmt.Errorf("%w %q: use %s or %s", ErrUnknownRefusal, text, RefuseByDrop, RefuseByReset)
}

// Limits bound the connections and packets of a service as a whole.
type Limits struct {
	// Rate is how many new flows a second there may be (TCP: SYNs, those sent again
	// included where no flow is remembered); 0: any number.
	Rate uint32 `json:"rate,omitempty"`
	// Burst is how many may come at once beyond those that the rate has due; 0: none.
	Burst uint32 `json:"burst,omitempty"`
	// Connections is how many flows there may be that have not ended, half-open
	// ones included; 0: any number.
	Connections uint32 `json:"connections,omitempty"`
	// Refuse is the treatment of the rest, and of all other packets that cannot be sent on; empty stands for
	// RefuseByDrop.
	Refuse Refusal `json:"refuse,omitempty"`
}

// Transition is how flows are carried over a change of backends.
type Transition struct {
	// Window is how long, after the last change, packets of flows that are
	// not remembered are sent where they went before; 0 leaves it to the data plane.
	Window time.Duration `json:"window_ns,omitempty"`
}
