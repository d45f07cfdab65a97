// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// loop is two balancers that are each other's backends.
type loop struct {
	*lab.Lab
	here, there *balancer
}

// newLoop starts both balancers. Each has its own VIP in mode nat, and both have the same VIP in l2dsr.
func newLoop(t *testing.T, mode lb.Mode) *loop {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 1})
	other := l.Servers[0]
	p := &loop{Lab: l, here: newBalancer(t, l.Balancer), there: newBalancer(t, other)}
	vips, backends := [2]netip.Addr{l.VIP4, l.VIP4}, [2]netip.Addr{other.IPv4, l.Balancer.IPv4}
	if mode == lb.NAT {
		vips[1] = l.VIP4.Next()
		backends = [2]netip.Addr{vips[1], vips[0]}
	}
	for i, b := range []*balancer{p.here, p.there} {
		b.configure(t, lb.HookTC,
			entry{"services": []entry{{"name": "web", "vip": vips[i].String(), "port": doctorPort, "protocol": "tcp",
				"mode": string(mode), "scheduler": "maglev",
				"backends": []entry{{"name": "other", "address": backends[i].String(), "port": doctorPort}}}}})
		b.daemon = jeoul(t, b.host, &b.log, "run", "-c", b.config, "--state-dir", filepath.Join(b.host.Dir, "state"))
	}
	for _, b := range []*balancer{p.here, p.there} {
		b.eventually(t, "the other balancer is up", allUp)
	}
	return p
}

// sendSYNs sends a SYN, and another one each second, until the time is over.
func (p *loop) sendSYNs(ctx context.Context, limit time.Duration) {
	_ = p.Clients[0].Do(func() error {
		connection, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, "tcp",
			netip.AddrPortFrom(p.VIP4, doctorPort).String())
		if err == nil {
			connection.Close()
		}
		return err
	})
}

// counted sums an outcome of both balancers.
func (p *loop) counted(t *testing.T, names ...string) (packets uint64) {
	t.Helper()
	for _, b := range []*balancer{p.here, p.there} {
		outcomes := b.outcomes(t)
		for _, name := range names {
			packets += outcomes[name]
		}
	}
	return packets
}

// TestLoopEnds: a SYN that loops between two balancers in mode nat ends when its hop limit is used up.
func TestLoopEnds(t *testing.T) {
	t.Parallel()
	p := newLoop(t, lb.NAT)
	p.sendSYNs(t.Context(), 200*time.Millisecond)
	p.here.eventually(t, "a SYN has ended", func(*ops.Status) bool {
		return p.counted(t, "answered_time_exceeded", "dropped_time_exceeded") > 0
	})
	forwarded, ended := p.counted(t, "forwarded"), p.counted(t, "answered_time_exceeded", "dropped_time_exceeded")
	if forwarded < 2 || forwarded > 255*ended {
		t.Errorf("%d SYNs were forwarded %d times: once is no loop, and more than 255 times each is one without an end",
			ended, forwarded)
	}
}

// TestLoopIsFound: mode l2dsr changes nothing in a packet. There the doctor finds the loop.
func TestLoopIsFound(t *testing.T) {
	t.Parallel()
	p := newLoop(t, lb.L2DSR)
	repeat(t, 300*time.Millisecond, func(ctx context.Context) { p.sendSYNs(ctx, 200*time.Millisecond) })
	p.here.eventually(t, "packets go round", func(*ops.Status) bool { return p.counted(t, "forwarded") > 1000 })
	w := &doctorLab{Lab: p.Lab, balancer: p.here}
	report := w.examine(t, p.here.host)
	// The doctor counts for two seconds. If a busy machine has delayed the sender during that time, nothing looped.
	for tries := 1; tries < 5 && !found(report, "forwarding-loop"); tries++ {
		report = w.examine(t, p.here.host)
	}
	// First, because the loop takes the machine's CPU time.
	stop(t, p.there.daemon)
	checkFinding(t, p.here.host, report, "forwarding-loop", "web/other")
}
