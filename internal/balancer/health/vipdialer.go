// SPDX-License-Identifier: Apache-2.0

// Package health asks the backends of services whether they serve, and gives verdicts: one
// checker for each protocol, one schedule for all endpoints, and rise and fall. It knows
// neither eBPF nor the configuration's file.
package health

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

var (
	// ErrNoPath says that a check could not be sent, and that this is not the backend's doing. It is
	// no evidence against the backend.
	ErrNoPath = errors.New("there is no path to the backend")
	// ErrForNow is ErrNoPath as each start brings it, while the path is being made, or an operation that takes the
	// backend out: no trouble to report.
	ErrForNow = fmt.Errorf("%w for now", ErrNoPath)
)

// VIPDialer opens connections to one backend by the VIP of a service, as packets of the service are
// sent to it (lb.ViaVIP).
type VIPDialer interface {
	// Dial opens a connection to port of the VIP on the backend: network is "tcp" or "udp". A
	// UDP connection is connected: it gives ICMP errors as errors of Read and Write. Errors are
	// those of net.Dialer, or say why there is no path to the backend at the moment: ErrNoPath where
	// that is not the backend's doing.
	Dial(ctx context.Context, network string, backend lb.BackendKey, port uint16) (net.Conn, error)
	// Ping sends an echo request to the VIP on the backend, and waits for its reply until the
	// context ends.
	Ping(ctx context.Context, backend lb.BackendKey) error
}
