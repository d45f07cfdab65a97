// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The pauses of the test's services.
const outlierPause, outlierLongest = 2 * time.Second, 8 * time.Second

// outlierPorts are the ports of the services: one by the hash and one by turns over TCP, and one over UDP.
var outlierPorts = []uint16{webPort, otherWebPort, dnsPort}

// TestOutliers: in every mode that supports ejection, for each family and protocol, a backend that refuses is ejected,
// readmitted, and ejected for longer while it refuses, and serves when it is repaired. A backend whose firewall drops
// packets is ejected by TCP. The last serving backend is never ejected.
func TestOutliers(t *testing.T) {
	testenv.Also(t, matrixTarget)
	onHooksAtOnce(t, ejectOutliers)
}

func ejectOutliers(t *testing.T, hook lb.Hook) {
	s := buildStage(t, hook, 1)
	var services []entry
	var asked []serving
	for _, p := range oneOfEach() {
		if !p.mode.Translates() {
			continue
		}
		for _, port := range outlierPorts {
			service := s.service(p, port)
			service["outliers"] = entry{"failures": "50%", "connections": 5, "interval": "2s", "ejected": "100%",
				"pause": outlierPause.String(), "longest_pause": outlierLongest.String()}
			services = append(services, service)
			asked = append(asked, serving{service["protocol"].(string), netip.AddrPortFrom(p.vip, port)})
		}
	}
	configuration := s.configuration()
	configuration["services"] = services
	s.configure(t, hook, configuration)
	var web, dns []uint16
	for _, shift := range portShift {
		web, dns = append(web, webPort+shift, otherWebPort+shift), append(dns, dnsPort+shift)
	}
	var servers []*faultyServer
	var echoes []*echoServer
	for _, server := range s.Servers {
		servers = append(servers, startFaultyServer(t, server, web...))
		echoes = append(echoes, listenForEchoes(t, server, dns))
	}
	s.start(t)
	s.askContinuously(t, asked)
	is := func(b ops.Backend, at int) bool { return b.Name == s.Servers[at].Name }

	servers[1].close(t)
	echoes[1].close(t)
	s.awaitOnceAllBackends(t, "the one that refuses is ejected, and no other", func(service ops.Service, b ops.Backend) bool {
		if b.State == lb.Ejected && !is(b, 1) {
			t.Fatalf("%s/%s is ejected: %+v", service.Name, b.Name, b.Ejection)
		}
		return (b.State == lb.Ejected) == is(b, 1)
	})
	s.expectNoFlowsToEjected(t, asked)
	s.awaitOnceAllBackends(t, "it is ejected again, for longer", func(_ ops.Service, b ops.Backend) bool {
		return !is(b, 1) || b.Ejection != nil && b.Ejection.Times >= 2 &&
			b.Ejection.Until.Sub(b.Ejection.Since).Round(time.Millisecond) == min(outlierPause<<(b.Ejection.Times-1),
				outlierLongest)
	})
	servers[1].open(t)
	echoes[1].open(t)
	s.awaitAllBackends(t, "it serves when it is cured", up)

	ward := func(rule string) {
		runOn(t, s.Servers[2], "table inet ward { chain in { type filter hook input priority 0; "+rule+" }; }",
			"nft", "-f", "-")
	}
	lift := func() error {
		return exec.CommandContext(context.WithoutCancel(t.Context()), "nft", "delete", "table", "inet", "ward").Run()
	}
	ward("tcp flags syn / syn,ack drop; meta l4proto udp drop;")
	s.awaitOnceAllBackends(t, "the one that drops is ejected by TCP", func(service ops.Service, b ops.Backend) bool {
		if b.State == lb.Ejected && (!is(b, 2) || service.Protocol == lb.UDP) {
			t.Fatalf("%s/%s is ejected: %+v", service.Name, b.Name, b.Ejection)
		}
		return (b.State == lb.Ejected) == (is(b, 2) && service.Protocol == lb.TCP)
	})
	within(t, s.Servers[2], lift)
	s.awaitAllBackends(t, "it serves when nothing is dropped", up)

	for i, checked := range servers[:2] {
		checked.close(t)
		echoes[i].close(t)
	}
	s.awaitOnceAllBackends(t, "both that refuse are ejected", func(_ ops.Service, b ops.Backend) bool {
		return is(b, 2) || b.State == lb.Ejected
	})
	servers[2].close(t)
	echoes[2].close(t)
	reported := map[string]bool{}
	s.within(t, time.Minute, "the last is not ejected, and that is reported", func(status *ops.Status) bool {
		for _, service := range status.Services {
			if !slices.ContainsFunc(service.Backends, func(b ops.Backend) bool { return b.State != lb.Ejected }) {
				t.Fatalf("%s has no backend left: %+v", service.Name, service.Backends)
			}
			if slices.ContainsFunc(service.Backends, func(b ops.Backend) bool { return b.Spared != "" }) {
				reported[service.Name] = true
			}
		}
		return len(reported) == len(status.Services)
	})
	for i, checked := range servers {
		checked.open(t)
		echoes[i].open(t)
	}
}

// serving is an endpoint that clients send requests to.
type serving struct {
	network string
	at      netip.AddrPort
}

func up(_ ops.Service, b ops.Backend) bool { return b.State == lb.Up }

// awaitAllBackends waits until a condition holds for every backend of every service.
func (s *stage) awaitAllBackends(t *testing.T, what string, holds func(ops.Service, ops.Backend) bool) {
	t.Helper()
	s.within(t, time.Minute, what, func(status *ops.Status) bool {
		all := true
		for _, service := range status.Services {
			all = all && allBackends(service, holds)
		}
		return all
	})
}

// awaitOnceAllBackends waits until a condition has held, for each service at some time, for all of its backends.
func (s *stage) awaitOnceAllBackends(t *testing.T, what string, holds func(ops.Service, ops.Backend) bool) {
	t.Helper()
	held := map[string]bool{}
	s.within(t, time.Minute, what, func(status *ops.Status) bool {
		for _, service := range status.Services {
			held[service.Name] = allBackends(service, holds) || held[service.Name]
		}
		for _, service := range status.Services {
			if !held[service.Name] {
				return false
			}
		}
		return true
	})
}

func allBackends(s ops.Service, holds func(ops.Service, ops.Backend) bool) bool {
	all := true
	for _, b := range s.Backends {
		all = holds(s, b) && all
	}
	return all
}

// expectNoFlowsToEjected checks that no new flows go to a backend while it is ejected. It repeats until an ejection
// outlasts the requests.
func (s *stage) expectNoFlowsToEjected(t *testing.T, asked []serving) {
	t.Helper()
	testenv.Eventually(t, e2e.WaitLimit, "a backend was ejected all the while", func() bool {
		return s.flowsToEjected(t, asked) > 0
	})
}

// flowsToEjected fails the test if new flows went to a backend while it was ejected, and returns the number of backends
// that were ejected all the while.
func (s *stage) flowsToEjected(t *testing.T, asked []serving) (seen int) {
	t.Helper()
	before := s.status(t)
	for range 10 {
		for _, a := range asked {
			s.try(t.Context(), a)
		}
	}
	after := s.status(t)
	for i, service := range before.Services {
		for j, b := range service.Backends {
			now := after.Services[i].Backends[j]
			if b.Ejection == nil || now.Ejection == nil || !b.Ejection.Since.Equal(now.Ejection.Since) {
				continue
			}
			seen++
			if now.Connections != b.Connections || service.Protocol == lb.UDP && now.Packets != b.Packets {
				t.Errorf("%s/%s is ejected, and got %d new connections and %d packets", service.Name, b.Name,
					now.Connections-b.Connections, now.Packets-b.Packets)
			}
		}
	}
	return seen
}

// askContinuously makes a client send requests to each of these repeatedly until the test ends.
func (s *stage) askContinuously(t *testing.T, asked []serving) {
	t.Helper()
	for _, a := range asked {
		repeat(t, 50*time.Millisecond, func(ctx context.Context) { s.try(ctx, a) })
	}
}

// try opens a connection or sends a datagram, whatever the outcome.
func (s *stage) try(ctx context.Context, a serving) {
	_ = s.Clients[0].Do(func() error {
		dialer := net.Dialer{Timeout: 200 * time.Millisecond}
		c, err := dialer.DialContext(ctx, a.network, a.at.String())
		if err != nil {
			return err
		}
		defer c.Close()
		if a.network == "udp" {
			_, err = c.Write([]byte("who"))
		}
		return err
	})
}

// echoServer answers each datagram on some ports of a host.
type echoServer struct {
	host  *lab.Host
	ports []uint16
	conns []net.PacketConn
}

func listenForEchoes(t *testing.T, host *lab.Host, ports []uint16) *echoServer {
	t.Helper()
	e := &echoServer{host: host, ports: ports}
	e.open(t)
	t.Cleanup(func() { e.close(t) })
	return e
}

func (e *echoServer) open(t *testing.T) {
	t.Helper()
	for _, port := range e.ports {
		var conn net.PacketConn
		within(t, e.host, func() (err error) {
			conn, err = net.ListenPacket("udp", fmt.Sprintf(":%d", port))
			return err
		})
		e.conns = append(e.conns, conn)
		go func() {
			for buffer := make([]byte, 64); ; {
				n, from, err := conn.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = conn.WriteTo(buffer[:n], from)
			}
		}()
	}
}

func (e *echoServer) close(t *testing.T) {
	t.Helper()
	for _, conn := range e.conns {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	e.conns = nil
}
