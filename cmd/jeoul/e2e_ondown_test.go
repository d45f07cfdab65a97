// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// nameServer answers each line or datagram with its host's name.
type nameServer struct{ host *lab.Host }

// serveTCP and serveUDP answer on a port of the host's own IPv4 address until the test ends.
func (n nameServer) serveTCP(t *testing.T, port uint16) {
	l := listenOn(t, n.host, port)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if _, err := c.Write([]byte(n.host.Name + "\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
}

func (n nameServer) serveUDP(t *testing.T, port uint16) {
	var c net.PacketConn
	within(t, n.host, func() (err error) {
		c, err = net.ListenPacket("udp", netip.AddrPortFrom(n.host.IPv4, port).String())
		return err
	})
	t.Cleanup(func() { c.Close() })
	go func() {
		for buffer := make([]byte, 100); ; {
			_, from, err := c.ReadFrom(buffer)
			if err != nil {
				return
			}
			if _, err := c.WriteTo([]byte(n.host.Name+"\n"), from); err != nil {
				return
			}
		}
	}()
}

// askName sends a line, and returns the name that comes back.
func askName(c net.Conn) (string, error) { return e2e.AskLine(c, "who") }

// flowsTo opens flows until each of the servers has one.
func flowsTo(t *testing.T, l *lab.Lab, network string, to netip.AddrPort) map[string]net.Conn {
	t.Helper()
	flows := map[string]net.Conn{}
	for range 50 {
		var c net.Conn
		within(t, l.Clients[0], func() (err error) {
			c, err = (&net.Dialer{Timeout: e2e.WaitLimit}).Dial(network, to.String())
			return err
		})
		t.Cleanup(func() { c.Close() })
		name, err := askName(c)
		if err != nil {
			t.Fatal(err)
		}
		if flows[name] = c; len(flows) == len(l.Servers) {
			return flows
		}
	}
	t.Fatalf("of the servers only these were met: %v", flows)
	return nil
}

// onDownStage is a balancer with a service for each action on flows, in the modes that translate. The checks use
// another port than the services.
type onDownStage struct {
	*lab.Lab
	*balancer
	services []onDownService
}

type onDownService struct {
	name, network string
	does          lb.OnDown
	at            netip.AddrPort
}

// checkedPort is the port of the stage's checks.
const checkedPort = 7000

func newOnDownStage(t *testing.T, hook lb.Hook) *onDownStage {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 3})
	s := &onDownStage{Lab: l, balancer: newBalancer(t, l.Balancer)}
	var services []entry
	for _, mode := range []lb.Mode{lb.NAT, lb.FullNAT} {
		for _, does := range []lb.OnDown{lb.KeepFlows, lb.ResetFlows, lb.MoveFlows} {
			services = append(services, s.add(t, mode, does))
		}
	}
	s.configure(t, hook,
		entry{"services": services, "fullnat": entry{"addresses": []string{"198.18.0.99"}, "ports": "20000-29999"}})
	for _, server := range l.Servers {
		if err := server.RouteThrough(l.Balancer, netip.PrefixFrom(l.Clients[0].IPv4, 32), true); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// add starts the servers of another service, and returns its configuration.
func (s *onDownStage) add(t *testing.T, mode lb.Mode, does lb.OnDown) entry {
	port := uint16(80 + len(s.services))
	service := onDownService{string(mode) + "-" + string(does), "tcp", does,
		netip.AddrPortFrom(netip.MustParseAddr("198.18.0.105"), port)}
	serve := nameServer.serveTCP
	if does == lb.MoveFlows {
		service.network, serve = "udp", nameServer.serveUDP
	}
	s.services = append(s.services, service)
	var backends []entry
	for _, server := range s.Servers {
		backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String(), "port": 8000 + port})
		serve(nameServer{server}, t, 8000+port)
	}
	return entry{"name": service.name, "vip": service.at.Addr().String(), "port": port, "protocol": service.network,
		"mode": string(mode), "scheduler": "rr",
		"check": entry{"type": "tcp", "port": checkedPort, "interval": "300ms"}, "on_down": string(does),
		"backends": backends}
}

// found waits until all backends are healthy except, if given, one.
func (s *onDownStage) found(t *testing.T, faulty *lab.Host) {
	t.Helper()
	s.eventually(t, "the checks have found what is", func(status *ops.Status) bool {
		return everyBackend(status, func(_ ops.Service, at ops.Backend) bool {
			if faulty != nil && at.Name == faulty.Name {
				return at.State == lb.Unhealthy
			}
			return at.State == lb.Up && at.Health.State == lb.Healthy
		})
	})
}

// follow sends requests on a service's flows, by the name of the server that had each, while one server fails.
func (service onDownService) follow(t *testing.T, flows map[string]net.Conn, faulty *lab.Host) {
	t.Helper()
	for name, c := range flows {
		answer, err := askName(c)
		does := lb.KeepFlows
		if name == faulty.Name {
			does = service.does
		}
		switch {
		case does == lb.ResetFlows && errors.Is(err, syscall.ECONNRESET):
		case does == lb.MoveFlows && err == nil && answer != name && flows[answer] != nil:
		case does == lb.KeepFlows && err == nil && answer == name:
		default:
			t.Errorf("%s: a flow of %s is answered by %q, %v, and was to %s", service.name, name, answer, err, does)
		}
	}
}

// TestOnDown: the checks of one of three backends fail, while its programs continue. Its connections continue with it
// or are reset, and its datagrams move, as each service is configured; the flows of the others continue in any case.
func TestOnDown(t *testing.T) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		s := newOnDownStage(t, hook)
		faulty, listeners := s.Servers[1], map[string]net.Listener{}
		for _, server := range s.Servers {
			listeners[server.Name] = listenOn(t, server, checkedPort)
		}
		t.Cleanup(func() {
			for _, l := range listeners {
				l.Close()
			}
		})
		s.start(t)
		s.found(t, nil)
		var flows []map[string]net.Conn
		for _, service := range s.services {
			flows = append(flows, flowsTo(t, s.Lab, service.network, service.at))
		}
		listeners[faulty.Name].Close()
		s.found(t, faulty)
		for i, service := range s.services {
			service.follow(t, flows[i], faulty)
		}
		listeners[faulty.Name] = listenOn(t, faulty, checkedPort)
		s.found(t, nil)
		for i, service := range s.services {
			if service.does != lb.KeepFlows {
				continue
			}
			if answer, err := askName(flows[i][faulty.Name]); err != nil || answer != faulty.Name {
				t.Errorf("%s: a connection of %s, which is healthy again, is answered by %q, %v", service.name, faulty.Name,
					answer, err)
			}
		}
	})
}
