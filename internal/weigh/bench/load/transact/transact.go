// SPDX-License-Identifier: Apache-2.0

package transact

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
)

// Test is a kind of transaction.
type Test string

// The tests.
const (
	CRR Test = "tcp_crr"
	RR  Test = "tcp_rr"
)

// Options describe a client's load.
type Options struct {
	Test Test
	// Target is a Server's address for the test, or that of a balancer in front of it.
	Target netip.AddrPort
	// Connections is the number of concurrent transactions.
	Connections int
	// Duration is the time in which transactions begin and are counted.
	Duration time.Duration
}

// Bounds of a client.
const (
	// timeout is how long an answer may take. It is longer than the first two timeouts for the retransmission of a SYN
	// (1 s and 3 s, RFC 6298).
	timeout     = 4 * time.Second
	minDuration = 10 * time.Millisecond
	maxDuration = time.Hour
)

// Check returns the first impossible setting of o as an error.
func (o Options) Check() error {
	switch {
	case o.Test != CRR && o.Test != RR:
		return fmt.Errorf("%q is not a test; use %s or %s", o.Test, CRR, RR)
	case !o.Target.IsValid() || o.Target.Port() == 0:
		return errors.New("transactions need an address and a port")
	case o.Connections < 1:
		return fmt.Errorf("%d connections are not possible; use at least one", o.Connections)
	case o.Duration < minDuration || o.Duration > maxDuration:
		return fmt.Errorf("%v is not possible; use %v to %v", o.Duration, minDuration, maxDuration)
	}
	return nil
}

// Report is the report of a client.
type Report struct {
	// Transactions counts those that ended within Seconds, Failed those that failed at any time.
	Transactions uint64 `json:"transactions"`
	load.Failures
	Seconds float64 `json:"seconds"`
	// Drained is how many seconds the client then waited for outstanding transactions, which are not counted.
	Drained float64 `json:"drained,omitempty"`
	// Latency has the latencies of these transactions, each from the call that connects or sends to the last call that
	// reads or closes.
	Latency *load.Latency `json:"latency"`
}

func (r *Report) ended(took time.Duration) {
	// At most an hour, so the value is in range.
	if err := r.Latency.Record(float64(took.Nanoseconds())/1e3, 1); err != nil {
		r.Fail(err)
		return
	}
	r.Transactions++
}

// Parse reads a Report from JSON. Its error wraps load.ErrOutput.
func Parse(text []byte) (*Report, error) {
	r, err := load.ReadReport(text, func(r *Report) *load.Latency { return r.Latency }, func(r *Report) uint64 {
		return r.Transactions
	})
	if err != nil {
		return nil, err
	}
	if !(r.Seconds > 0 && r.Seconds <= 2*maxDuration.Seconds()) {
		return nil, fmt.Errorf("%w: it took %g s", load.ErrOutput, r.Seconds)
	}
	if !(r.Drained >= 0 && r.Drained <= 2*maxDuration.Seconds()) {
		return nil, fmt.Errorf("%w: it waited %g s for the last answers", load.ErrOutput, r.Drained)
	}
	return r, nil
}
