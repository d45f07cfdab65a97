// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The smallest possible pool, and the number of short connections in a few seconds.
const (
	shortPorts = 64
	shortLived = 4 * shortPorts
	// shortAtOnce is the greatest number of them that are open at a time.
	shortAtOnce = 16
)

// TestFullNATShortConnections: more short connections than the pool has ports pass through full NAT, one after the
// other, whichever end closes them: real kernels accept each port again.
func TestFullNATShortConnections(t *testing.T) {
	testenv.Also(t, matrixTarget)
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		for _, how := range testenv.Some(t, matrixTarget, 1,
			[]string{"client closes first", "server closes first", "client resets"}) {
			t.Run(how, func(t *testing.T) {
				l := newLab(t, lab.Spec{Clients: 1, Servers: 1})
				b := newBalancer(t, l.Balancer)
				vip := netip.MustParseAddrPort("198.18.0.105:80")
				b.configure(t, hook, entry{
					"services": []entry{{"name": "web", "vip": vip.Addr().String(), "port": vip.Port(),
						"mode":     "fullnat",
						"backends": []entry{{"name": "server", "address": l.Servers[0].IPv4.String(), "port": 8080}}}},
					"fullnat": entry{"addresses": []string{"198.18.0.99"},
						"ports": fmt.Sprintf("%d-%d", firstPoolPort, firstPoolPort+shortPorts-1)}})
				startGreeter(t, l.Servers[0], 8080, how == "server closes first")
				b.start(t)
				shortOnes(t, l.Clients[0], vip, how)
				outcomes := b.outcomes(t)
				if n := outcomes["dropped_no_port"]; n != 0 {
					t.Errorf("%d packets found no port", n)
				}
				if t.Failed() {
					t.Logf("packets ended so:%s", ended(outcomes))
				}
			})
		}
	})
}

// shortOnes opens connections, each for the duration of a greeting.
func shortOnes(t *testing.T, client *lab.Host, to netip.AddrPort, how string) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(shortAtOnce)
	began := time.Now()
	var mu sync.Mutex
	var longest time.Duration
	for range shortLived {
		group.Go(func() error {
			from := time.Now()
			err := client.Do(func() error { return short(to, how) })
			mu.Lock()
			longest = max(longest, time.Since(from))
			mu.Unlock()
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d connections over %d ports in %v, the longest %v", shortLived, shortPorts, time.Since(began), longest)
}

// short makes one connection.
func short(to netip.AddrPort, how string) error {
	c, err := (&net.Dialer{Timeout: e2e.WaitLimit}).Dial("tcp", to.String())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(e2e.WaitLimit)); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return fmt.Errorf("read the greeting on a connection from %s: %w", c.LocalAddr(), err)
	}
	if how == "client resets" {
		return c.(*net.TCPConn).SetLinger(0)
	}
	if how == "server closes first" {
		_, err = io.Copy(io.Discard, c)
	}
	return err
}

// startGreeter starts a program on a host that sends a byte to each client, and then closes the connection, or lets its
// client close it.
func startGreeter(t *testing.T, host *lab.Host, port uint16, closes bool) {
	t.Helper()
	l := listenOn(t, host, port)
	var group errgroup.Group
	group.Go(func() error {
		for {
			c, err := l.Accept()
			if err != nil {
				return nil
			}
			group.Go(func() error {
				defer c.Close()
				if _, err := c.Write([]byte{1}); err == nil && !closes {
					io.Copy(io.Discard, c)
				}
				return nil
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		group.Wait()
	})
}
