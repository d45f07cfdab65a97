// SPDX-License-Identifier: Apache-2.0

// Package apiclock compares the API server's clock, by the field Date of its responses, with this host's.
package apiclock

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Clock is the API server's clock, as the last response showed it.
type Clock struct {
	mu   sync.Mutex
	skew Skew
}

// Skew bounds by how much the API server's clock is ahead of this host's. Date has whole seconds (RFC 9110 section
// 5.6.7), and was set at some time between the request and the response. The zero Skew: nothing is known.
type Skew struct {
	Least, Most time.Duration
}

// tolerance is a skew that does no harm: Leases and tokens of Kubernetes last longer.
const tolerance = 5 * time.Second

// Problem says that the clocks differ by more than the tolerance; empty where they may agree.
func (s Skew) Problem() string {
	switch {
	case s.Least > tolerance:
		return fmt.Sprintf("the API server's clock is %s ahead of this host's", s.Least.Round(time.Second))
	case s.Most < -tolerance:
		return fmt.Sprintf("the API server's clock is %s behind this host's", (-s.Most).Round(time.Second))
	}
	return ""
}

// Skew returns the skew by the last response.
func (c *Clock) Skew() Skew {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skew
}

// Wrap returns a transport whose responses set the clock.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper { return &transport{next, c} }

// transport is a transport whose responses set a clock.
type transport struct {
	next  http.RoundTripper
	clock *Clock
}

// WrappedRoundTripper returns the transport below, which client-go asks for.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := time.Now()
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	date, err := http.ParseTime(response.Header.Get("Date"))
	if err == nil { // without the field, nothing is known
		// By the wall clock: a response that began before this host's clock was set says nothing of the new time.
		received := time.Now()
		t.clock.set(Skew{date.Sub(received.Round(0)), date.Add(time.Second).Sub(sent.Round(0))})
	}
	return response, nil
}

// set keeps a skew. One whose bounds are the wrong way round is of a time in which this host's clock was set.
func (c *Clock) set(s Skew) {
	if s.Least > s.Most {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew = s
}
