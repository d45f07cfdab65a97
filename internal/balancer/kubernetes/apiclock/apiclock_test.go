// SPDX-License-Identifier: Apache-2.0

package apiclock

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// server is an API server whose clock is ahead, and whose answers take their time.
type server struct {
	ahead, takes time.Duration
	noDate       bool
	err          error
}

func (s server) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(s.takes / 2)
	response := &http.Response{Header: http.Header{}, Body: http.NoBody}
	if !s.noDate {
		response.Header.Set("Date", time.Now().Add(s.ahead).UTC().Format(http.TimeFormat))
	}
	time.Sleep(s.takes / 2)
	return response, s.err
}

func TestSkew(t *testing.T) {
	for _, c := range []struct {
		server
		want string
	}{
		{server{}, ""},
		{server{takes: 40 * time.Second}, ""},
		{server{ahead: 4 * time.Second}, ""},
		{server{ahead: -5 * time.Second}, ""},
		{server{ahead: 40 * time.Second}, "the API server's clock is 40s ahead of this host's"},
		{server{ahead: -40 * time.Second}, "the API server's clock is 40s behind this host's"},
		{server{ahead: time.Hour, takes: 2 * time.Second}, "the API server's clock is 59m59s ahead of this host's"},
		{server{ahead: time.Hour, noDate: true}, ""},
		{server{ahead: time.Hour, err: errors.New("refused")}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(500 * time.Millisecond) // Date says when the second began
			clock := &Clock{}
			_, err := clock.Wrap(c.server).RoundTrip(&http.Request{})
			if got := clock.Skew().Problem(); got != c.want || !errors.Is(err, c.err) {
				t.Errorf("%+v: %q, %v; want %q", c.server, got, err, c.want)
			}
			if s := clock.Skew(); s != (Skew{}) && (c.ahead < s.Least || c.ahead > s.Most) {
				t.Errorf("%+v: by %v to %v", c.server, s.Least, s.Most)
			}
			// The last response counts.
			clock.Wrap(server{}).RoundTrip(&http.Request{})
			if got := clock.Skew().Problem(); got != "" {
				t.Errorf("after the clock was set: %q", got)
			}
		})
	}
}

// TestClockIsSet: a response during which this host's clock was set by an hour says nothing.
func TestClockIsSet(t *testing.T) {
	clock := &Clock{}
	clock.set(Skew{-time.Hour - time.Second, -time.Hour})
	clock.set(Skew{time.Hour, -time.Hour})
	if got := clock.Skew().Problem(); got != "the API server's clock is 1h0m0s behind this host's" {
		t.Error(got)
	}
}
