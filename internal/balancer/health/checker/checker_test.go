// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// patiently is a timeout for checks whose answer must come: on a busy machine, too.
const patiently = 20 * time.Second

// check makes one check of an address; where that can be done without a goroutine, too, both must
// find the same.
func check(t *testing.T, to netip.AddrPort, c lb.Check) health.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound(&c))
	defer cancel()
	endpoint := health.Endpoint{Via: lb.ViaAddress, Address: to.Addr(), Port: to.Port()}
	answer := New(nil).Check(ctx, endpoint, &c, nil)
	answers := make(chan health.Answer, 2)
	if New(nil).Start(t.Context(), endpoint, &c, time.Second, func(a health.Answer) { answers <- a }) {
		if started := <-answers; started != answer {
			t.Errorf("started without a goroutine: %+v, asked with one: %+v", started, answer)
		}
	}
	return answer
}

// checkInTime is check of an endpoint that does not count as silent, or by a program that has its turn at once: where
// that is not so, this process was stopped for the timeout, and the check is made again.
func checkInTime(t *testing.T, to netip.AddrPort, c lb.Check) (answer health.Answer) {
	t.Helper()
	until(t, "a check that is in time", func() bool {
		answer = check(t, to, c)
		return answer != health.Silence(c.Timeout) && answer.Text != "too many programs"
	})
	return answer
}

// bound is how long the context of a check lasts: see health.Checker.
func bound(c *lb.Check) time.Duration {
	if c.Type == lb.CheckExec {
		return 2 * c.Timeout
	}
	return c.Timeout
}

// expect fails unless the answer has that outcome, and its reason (or text, where it passed) the words.
func expect(t *testing.T, got health.Answer, outcome health.Outcome, words string) {
	t.Helper()
	text := got.Reason
	if outcome == health.Passed {
		text = got.Text
	}
	if got.Outcome != outcome || !strings.Contains(text, words) {
		t.Errorf("%+v, expected outcome %d with %q", got, outcome, words)
	}
}

// serve runs a TCP server on loopback whose connections are handled by handle.
func serve(t *testing.T, address string, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}
