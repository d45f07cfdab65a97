// SPDX-License-Identifier: Apache-2.0

package paced

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
)

// Options describe a client's load.
type Options struct {
	// Target is a web server, or a balancer in front of one. Path is the requested path, of a file of FileBytes.
	Target    netip.AddrPort
	Path      string
	FileBytes int
	// Rate is the number of requests that are due per second, from Delay until Duration.
	Rate     float64
	Delay    time.Duration
	Duration time.Duration
	// Connections is the maximum number of concurrent connections. A request that is due while all are in use waits,
	// and its latency includes the wait.
	Connections int
	// Keep means that a connection carries one request after another. Otherwise each request has a new connection,
	// which the server closes.
	Keep bool
	// Bound is the latency that 99 % of the requests must keep. The client ends as soon as that is impossible. 0 means
	// no bound.
	Bound time.Duration
}

// Bounds of a client.
const (
	// timeout is how long an answer may take, including the wait. It is longer than the first two timeouts for the
	// retransmission of a SYN (1 s and 3 s, RFC 6298).
	timeout     = 4 * time.Second
	MaxRate     = 1_000_000
	maxDuration = time.Hour
	// maxLate is the share of requests that may take longer than Bound.
	maxLate = 0.01
)

// Check returns the first impossible setting of o as an error.
func (o Options) Check() error {
	switch {
	case !o.Target.IsValid() || o.Path == "":
		return errors.New("requests need an address and a path to ask for")
	case o.FileBytes < 1:
		return fmt.Errorf("a file of %d bytes is not possible", o.FileBytes)
	case !(o.Rate > 0 && o.Rate <= MaxRate):
		return fmt.Errorf("%g requests a second are not possible; use up to %d", o.Rate, MaxRate)
	case o.Duration <= 0 || o.Duration > maxDuration || o.Delay < 0 || o.Delay > o.Duration || o.Bound < 0:
		return fmt.Errorf("%v, the first request after %v, is not possible; use up to %v", o.Duration, o.Delay,
			maxDuration)
	case o.Connections < 1:
		return fmt.Errorf("%d connections are not possible; use at least one", o.Connections)
	}
	return nil
}

// total returns the number of requests.
func (o Options) total() int {
	n := int((o.Duration - o.Delay).Seconds() * o.Rate)
	return max(n, 1)
}

// due returns when request i (from 0) is due, counted from the beginning.
func (o Options) due(i int) time.Duration {
	return o.Delay + time.Duration(float64(i)/o.Rate*float64(time.Second))
}

// dueBy returns the number of requests that are due by a moment.
func (o Options) dueBy(moment time.Duration) int {
	if moment < o.Delay {
		return 0
	}
	return min(int((moment-o.Delay).Seconds()*o.Rate)+1, o.total())
}

// Report is the report of a client.
type Report struct {
	// Due is the number of requests that were due, Answered that of the requests that got the file, and Failed that of
	// all others.
	Due      uint64 `json:"due"`
	Answered uint64 `json:"answered"`
	load.Failures
	// Waited counts the requests that found all connections in use.
	Waited uint64 `json:"waited"`
	// Seconds is the time until the last answer.
	Seconds float64 `json:"seconds"`
	// GaveUp means that the bound could not be kept any more, and the client ended early. Failed then includes requests
	// that were never sent.
	GaveUp bool `json:"gave_up,omitempty"`
	// Latency has the latencies of the answered requests, each from when the request was due.
	Latency *load.Latency `json:"latency"`
}

// Parse reads a Report from JSON. Its error wraps load.ErrOutput.
func Parse(text []byte) (*Report, error) {
	r, err := load.ReadReport(text, func(r *Report) *load.Latency { return r.Latency }, func(r *Report) uint64 {
		return r.Answered
	})
	if err != nil {
		return nil, err
	}
	switch {
	case r.Answered > r.Due || r.Failed != r.Due-r.Answered:
		return nil, fmt.Errorf("%w: of %d requests %d were answered and %d failed", load.ErrOutput, r.Due,
			r.Answered, r.Failed)
	case !(r.Seconds >= 0 && r.Seconds <= 2*maxDuration.Seconds()):
		return nil, fmt.Errorf("%w: it took %g s", load.ErrOutput, r.Seconds)
	}
	return r, nil
}
