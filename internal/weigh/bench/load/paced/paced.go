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
	// Target is a web server, or a balancer before one, and Path the path that is asked for: a file of FileBytes.
	Target    netip.AddrPort
	Path      string
	FileBytes int
	// Rate is how many requests are due each second, the first after Delay, and
	// Duration how long.
	Rate     float64
	Delay    time.Duration
	Duration time.Duration
	// Connections are the most at once. A request that is due while all are in use
	// waits, and that is part of its latency.
	Connections int
	// Keep has a connection carry one request after the other; otherwise each
	// request has a new one, which the server closes.
	Keep bool
	// Bound is the latency that 99 % of the requests must keep; the client ends as soon as that is impossible. 0: no
	// bound.
	Bound time.Duration
}

// Bounds of a client.
const (
	// timeout is how long an answer may take, waiting included. It is longer than the
	// first two times after which a lost SYN is sent again (1 s and 3 s, RFC 6298).
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

// total is how many requests are due.
func (o Options) total() int {
	n := int((o.Duration - o.Delay).Seconds() * o.Rate)
	return max(n, 1)
}

// due is when request i (from 0) is, from the beginning.
func (o Options) due(i int) time.Duration {
	return o.Delay + time.Duration(float64(i)/o.Rate*float64(time.Second))
}

// dueBy is how many requests are due by a moment.
func (o Options) dueBy(moment time.Duration) int {
	if moment < o.Delay {
		return 0
	}
	return min(int((moment-o.Delay).Seconds()*o.Rate)+1, o.total())
}

// Report is the report of a client.
type Report struct {
	// Due are the requests that were to be made, Answered those that were, with the
	// file, and Failed all others.
	Due      uint64 `json:"due"`
	Answered uint64 `json:"answered"`
	load.Failures
	// Waited counts the requests that found all connections in use.
	Waited uint64 `json:"waited"`
	// Seconds is the time until the last answer.
	Seconds float64 `json:"seconds"`
	// GaveUp: the bound could not be kept any more, and the client ended
	// early; Failed are then also those that were never sent.
	GaveUp bool `json:"gave_up,omitempty"`
	// Latency is that of the answered requests, each from when it was due.
	Latency *load.Latency `json:"latency"`
}

// Parse reads a Report that was written as JSON. Its error wraps load.ErrOutput.
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
