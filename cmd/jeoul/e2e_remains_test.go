// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// shortTimeout is how long a client waits if the answer does not matter.
const shortTimeout = 100 * time.Millisecond

// TestNothingRemains stops, kills and restarts the balancer and an agent while clients send requests: a stop leaves
// nothing on the host, the next start removes the remains of a kill, and everything works again after each.
func TestNothingRemains(t *testing.T) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		s := buildStage(t, hook, 1, kilo)
		hosts := []*lab.Host{s.Balancer, s.Servers[0]}
		before := map[*lab.Host]e2e.Settings{}
		for _, host := range hosts {
			before[host] = e2e.ReadSettings(t, host)
		}
		for _, server := range s.Servers {
			s.startAgent(t, server)
			s.startServers(t, server)
		}
		s.start(t)
		s.askAll(t)
		for _, end := range []func(*testing.T, *lab.Process){stop, kill} {
			rest := s.openIdle(t)
			s.whileAsking(t, func() { end(t, s.daemon) })
			s.start(t)
			rest.expectAlive(t)
			s.askAll(t)
		}
		s.whileAsking(t, func() { kill(t, s.agents[s.Servers[0].Name]) })
		s.startAgent(t, s.Servers[0])
		s.askAll(t)
		s.whileAsking(t, func() {
			stop(t, s.daemon)
			stop(t, s.agents[s.Servers[0].Name])
		})
		for _, host := range hosts {
			for _, line := range e2e.ReadSettings(t, host).Difference(before[host]) {
				t.Errorf("%s: %s", host.Name, line)
			}
		}
	})
}

// idleConnections are connections on which nothing is sent for a while, with the server of each.
type idleConnections []struct {
	net.Conn
	path   path
	server string
}

// openIdle opens some connections on each path that does not track flows: another balancer sends them to the same
// backend.
func (s *stage) openIdle(t *testing.T) (all idleConnections) {
	t.Helper()
	for _, p := range paths() {
		for range 5 {
			if p.mode == lb.FullNAT {
				continue
			}
			connection := s.connect(t, p, 0)
			server, err := whoOn(connection)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, idleConnections{{connection, p, server}}...)
		}
	}
	return all
}

// expectAlive sends a request on each connection again.
func (r idleConnections) expectAlive(t *testing.T) {
	t.Helper()
	for _, connection := range r {
		if server, err := whoOn(connection); err != nil || server != connection.server {
			t.Errorf("%s: a connection to %s that has rested was answered by %q: %v", connection.path,
				connection.server, server, err)
		}
		connection.Close()
	}
}

// askAll sends requests to each service until every server has answered.
func (s *stage) askAll(t *testing.T) {
	t.Helper()
	client := s.Clients[0]
	for _, p := range paths() {
		for _, port := range []uint16{webPort, otherWebPort} {
			answered := map[string]bool{}
			// By the hash alone, this many requests miss a server once in a hundred thousand million times.
			for asked := 0; len(answered) < len(s.Servers); asked++ {
				seen, err := e2e.NewBrowser(client).Who(bounded(t), netip.AddrPortFrom(p.vip, port))
				if err == nil {
					err = s.checkSeen(p, seen, client)
				}
				if err != nil {
					t.Fatalf("%s: %v", p, err)
				}
				if asked == 60 {
					t.Fatalf("%s, port %d: of %d connections, all went to %v", p, port, asked, answered)
				}
				answered[seen.Server] = true
			}
		}
		s.ask(t, p, netip.AddrPortFrom(p.vip, dnsPort), client, e2e.Small, 0)
	}
}

// whileAsking runs do while a client sends requests to each service repeatedly; the answers do not matter.
func (s *stage) whileAsking(t *testing.T, do func()) {
	t.Helper()
	stop, asked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(asked)
		browser := e2e.NewBrowser(s.Clients[0])
		browser.Timeout = shortTimeout
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				p := paths()[i%len(paths())]
				browser.Who(t.Context(), netip.AddrPortFrom(p.vip, webPort))
			}
		}
	}()
	// Not by a plain call: do may end the test.
	defer func() {
		close(stop)
		<-asked
	}()
	do()
}
