// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// starts begins a check, and returns where its answer comes.
func starts(t *testing.T, ctx context.Context, c *Checker, to netip.AddrPort, check lb.Check) <-chan health.Answer {
	t.Helper()
	answers := make(chan health.Answer, 2) // one more than may come
	if !c.Start(ctx, health.Endpoint{Via: lb.ViaAddress, Address: to.Addr(), Port: to.Port()}, &check, check.Timeout,
		func(a health.Answer) { answers <- a }) {
		t.Fatal("the check needs a goroutine")
	}
	return answers
}

// TestConnectionsThatWait: connections that are not there at once are waited for side by side, each
// until its own deadline, also where a later one begins first.
func TestConnectionsThatWait(t *testing.T) {
	t.Parallel()
	c := New(nil)
	later, listener := full(t)
	never, _ := full(t)
	slow := starts(t, t.Context(), c, later, tcpCheck(patiently))
	var silent []<-chan health.Answer
	for i := range 50 {
		silent = append(silent, starts(t, t.Context(), c, never, tcpCheck(time.Duration(100-i)*time.Millisecond)))
	}
	for _, answers := range silent {
		if got := <-answers; got.Outcome != health.Failed || !got.Silent {
			t.Errorf("of one that does not answer: %+v", got)
		}
	}
	fd, _, err := unix.Accept(listener) // makes room for the SYN that the kernel sends again
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	expect(t, <-slow, health.Passed, "connected")
	// The same sockets' numbers are used again.
	for _, answers := range []<-chan health.Answer{starts(t, t.Context(), c, never, tcpCheck(50*time.Millisecond)),
		starts(t, t.Context(), c, never, tcpCheck(time.Millisecond))} {
		if got := <-answers; got.Outcome != health.Failed || !got.Silent {
			t.Errorf("of one that does not answer: %+v", got)
		}
	}
}

// TestLongerThanTheTimeout: a connection is waited for as long as the engine says, whatever the check's timeout, and
// its failure names the timeout.
func TestLongerThanTheTimeout(t *testing.T) {
	c := New(nil)
	never, _ := full(t)
	for _, timeout := range []time.Duration{time.Hour, time.Nanosecond} {
		check := tcpCheck(timeout)
		answers := make(chan health.Answer, 1)
		began := time.Now()
		c.Start(t.Context(), health.Endpoint{Address: never.Addr(), Port: never.Port()}, &check, 50*time.Millisecond,
			func(a health.Answer) { answers <- a })
		if got := <-answers; got != health.Silence(timeout) || time.Since(began) < 50*time.Millisecond {
			t.Errorf("after %v: %+v", time.Since(began), got)
		}
	}
}

// TestConnectorEndsWithTheRun: whatever is waited for ends with the context, and another run begins.
func TestConnectorEndsWithTheRun(t *testing.T) {
	c := New(nil)
	never, _ := full(t)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		waits := starts(t, ctx, c, never, tcpCheck(time.Hour))
		cancel()
		expect(t, <-waits, health.NoEvidence, "context canceled")
		expect(t, <-starts(t, ctx, c, never, tcpCheck(time.Hour)), health.NoEvidence, "context canceled")
	}
	to := serve(t, "127.0.0.1:0", func(c net.Conn) {})
	expect(t, <-starts(t, t.Context(), c, to, tcpCheck(patiently)), health.Passed, "connected")
}

// TestOnlyConnectionsAreStarted: a check that does more than connect, or goes by the VIP, is left to Check.
func TestOnlyConnectionsAreStarted(t *testing.T) {
	byVIP, asks := tcpCheck(time.Second), tcpCheck(time.Second)
	byVIP.Via, asks.Type = lb.ViaVIP, lb.CheckTLS
	for _, check := range []lb.Check{byVIP, asks} {
		endpoint := health.Endpoint{Via: check.Via, Address: netip.MustParseAddr("127.0.0.1"), Port: 1}
		if New(nil).Start(t.Context(), endpoint, &check, time.Second, func(a health.Answer) { t.Errorf("%+v", a) }) {
			t.Errorf("%s via %s is started", check.Type, check.Via)
		}
	}
}
