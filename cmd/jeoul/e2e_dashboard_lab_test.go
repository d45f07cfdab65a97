// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/cmd/jeoul/watchcmd"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/agent"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// dashboardLab is a laboratory whose balancer is observed through its dashboard.
type dashboardLab struct {
	*lab.Lab
	*balancer
	faultyServers map[string]*faultyServer
	// url is the link that `jeoul dashboard` has printed.
	url string
}

// watchedPorts are the ports of the services web, shop and mail.
var watchedPorts = map[string]uint16{"web": 8080, "shop": 8081, "mail": 8025}

// newDashboardLab builds the laboratory and starts everything.
func newDashboardLab(t *testing.T, more entry) *dashboardLab {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 4})
	s := &dashboardLab{Lab: l, balancer: newBalancer(t, l.Balancer), faultyServers: map[string]*faultyServer{}}
	for _, server := range l.Servers {
		var a *agent.Agent
		err := server.Do(func() (err error) {
			a, err = agent.Start(agent.Options{VIPs: []netip.Addr{s.VIP4}, Dir: filepath.Join(server.Dir, "state")})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Do(a.Close) })
		var ports []uint16
		for _, port := range watchedPorts {
			ports = append(ports, port)
		}
		s.faultyServers[server.Name] = startFaultyServer(t, server, ports...)
	}
	configuration := entry{"services": s.services()}
	for key, value := range more {
		configuration[key] = value
	}
	s.configure(t, lb.HookTC, configuration)
	s.start(t)
	s.url = startDashboard(t, cmdkit.DaemonFlags{Socket: s.socket})
	return s
}

// services are three services of different kinds, all on the same four servers.
func (s *dashboardLab) services() (services []entry) {
	for _, service := range []entry{
		{"name": "web", "scheduler": "maglev", "check": entry{"type": "http", "via": "address", "path": "/healthz",
			"interval": "300ms", "timeout": "200ms"}},
		{"name": "shop", "scheduler": "wrr", "check": entry{"type": "tcp", "via": "address", "interval": "300ms",
			"timeout": "200ms"},
			"limits": entry{"rate": 200, "connections": 400}},
		{"name": "mail", "scheduler": "wlc"},
	} {
		var backends []entry
		for i, server := range s.Servers {
			backends = append(backends, entry{"name": fmt.Sprintf("%s%02d", service["name"], i+1),
				"address": server.IPv4.String(), "weight": 1 + i%2})
		}
		service["vip"], service["port"], service["backends"] = s.VIP4.String(),
			watchedPorts[fmt.Sprint(service["name"])], backends
		services = append(services, service)
	}
	return services
}

// startDashboard runs `jeoul dashboard` on this machine, which shares the socket's directory with the laboratory, and
// returns its link.
func startDashboard(t *testing.T, flags cmdkit.DaemonFlags) string {
	t.Helper()
	read, write := io.Pipe()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- (&watchcmd.DashboardCmd{DaemonFlags: flags}).Serve(ctx, write) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("jeoul dashboard: %v", err)
		}
	})
	link, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(link)
}

// ask makes connections to a service until the context ends, at a rate per second, and counts the servers that answer.
func (s *dashboardLab) ask(t *testing.T, ctx context.Context, service string, perSecond int) *responseCounts {
	t.Helper()
	to := fmt.Sprintf("http://%s/", netip.AddrPortFrom(s.VIP4, watchedPorts[service]))
	dial := func(ctx context.Context, network, address string) (connection net.Conn, err error) {
		err = s.Clients[0].Do(func() error {
			connection, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return connection, err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		Timeout: e2e.WaitLimit}
	a := &responseCounts{by: map[string]int{}}
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if response, err := client.Get(to); err == nil {
				a.note(response.Header.Get("Lab-Server"))
				response.Body.Close()
			}
		}
	})
	t.Cleanup(running.Wait)
	return a
}

// responseCounts counts answers by server.
type responseCounts struct {
	mu sync.Mutex
	by map[string]int
}

func (a *responseCounts) note(server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.by[server]++
}

// of returns the number of a server's answers, and that of all answers.
func (a *responseCounts) of(server string) (its, all int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.by {
		all += n
	}
	return a.by[server], all
}

// awaitMore waits for a number of further answers.
func (a *responseCounts) awaitMore(t *testing.T, n int) {
	t.Helper()
	_, before := a.of("")
	testenv.Eventually(t, e2e.WaitLimit, "clients are answered", func() bool {
		_, now := a.of("")
		return now >= before+n
	})
}
