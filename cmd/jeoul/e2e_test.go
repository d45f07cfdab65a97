// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/agent"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The ports of the test's services: one is scheduled by hash, one by turns.
const (
	hashPort = 7000
	turnPort = 7001
)

// segment is a laboratory with a balancer in it: two clients, three servers, and on each server TCP and UDP services
// that send the caller the address that they see.
type segment struct {
	*lab.Lab
	*balancer
}

// newSegment builds the laboratory and starts the daemon in it.
func newSegment(t *testing.T, hook lb.Hook) *segment {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 2, Servers: 3})
	s := &segment{l, newBalancer(t, l.Balancer)}
	for _, server := range l.Servers {
		s.serve(t, server)
	}
	s.configureTurns(t, hook, l.Servers)
	s.start(t)
	return s
}

// serve prepares a backend with the agent and starts its services.
func (s *segment) serve(t *testing.T, server *lab.Host) {
	t.Helper()
	var a *agent.Agent
	err := server.Do(func() (err error) {
		if a, err = agent.Start(agent.Options{VIPs: []netip.Addr{s.VIP4, s.VIP6},
			Dir: filepath.Join(server.Dir, "state")}); err != nil {
			return err
		}
		for _, port := range []int{hashPort, turnPort} {
			listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				return err
			}
			t.Cleanup(func() { listener.Close() })
			go serveTCP(listener, server.Name)
			for _, vip := range []netip.Addr{s.VIP4, s.VIP6} {
				// On the VIP itself, so that answers have it as their source.
				packets, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(vip, uint16(port))))
				if err != nil {
					return err
				}
				t.Cleanup(func() { packets.Close() })
				go serveUDP(packets, server.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Do(a.Close); err != nil && !errors.Is(err, lab.ErrClosed) {
			t.Error(err)
		}
	})
}

// serveTCP answers each line with the server's name and the client's address.
func serveTCP(listener net.Listener, name string) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			for lines := bufio.NewScanner(connection); lines.Scan(); {
				fmt.Fprintln(connection, name, addressFrom(connection.RemoteAddr()))
			}
		}()
	}
}

func serveUDP(packets *net.UDPConn, name string) {
	for buffer := make([]byte, 64); ; {
		_, from, err := packets.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		fmt.Fprintf(&datagram{packets, from}, "%s %s\n", name, from.Addr().Unmap())
	}
}

type datagram struct {
	*net.UDPConn
	to netip.AddrPort
}

func (d *datagram) Write(p []byte) (int, error) { return d.WriteToUDPAddrPort(p, d.to) }

func addressFrom(a net.Addr) netip.Addr {
	return netip.MustParseAddrPort(a.String()).Addr().Unmap()
}

// configureTurns writes a configuration. The services on turnPort have the given servers, those on hashPort all
// servers.
func (s *segment) configureTurns(t *testing.T, hook lb.Hook, turning []*lab.Host) {
	t.Helper()
	var services []entry
	for _, vip := range []netip.Addr{s.VIP4, s.VIP6} {
		for _, kind := range []struct {
			port      int
			scheduler lb.Scheduler
			servers   []*lab.Host
		}{{hashPort, lb.Maglev, s.Servers}, {turnPort, lb.RoundRobin, turning}} {
			for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
				var backends []entry
				for _, server := range kind.servers {
					address := server.IPv4
					if vip.Is6() {
						address = server.IPv6
					}
					backends = append(backends, entry{"name": server.Name, "address": address.String()})
				}
				services = append(services, entry{"name": fmt.Sprintf("s%d", len(services)), "vip": vip.String(),
					"port": kind.port, "protocol": protocol.String(), "scheduler": string(kind.scheduler),
					"backends": backends})
			}
		}
	}
	s.configure(t, hook, entry{"services": services})
}

// dial connects from a client, or opens a UDP socket towards a service.
func dial(t *testing.T, client *lab.Host, network string, to netip.AddrPort) net.Conn {
	t.Helper()
	var connection net.Conn
	err := client.Do(func() (err error) {
		connection, err = net.DialTimeout(network, to.String(), e2e.WaitLimit)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", client.Name, err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

// ask sends a line and returns the server that answered, and the client's address that it saw.
func ask(connection net.Conn) (server, client string, err error) {
	line, err := e2e.AskLine(connection, "who")
	if err != nil {
		return "", "", err
	}
	server, client, _ = strings.Cut(line, " ")
	return server, client, nil
}

// hooks are the hooks that a balancer can be in.
var hooks = []lb.Hook{lb.HookXDP, lb.HookTC}

// forEachHook runs a test with the balancer in XDP and in TC.
func forEachHook(t *testing.T, test func(t *testing.T, hook lb.Hook)) {
	for _, hook := range hooks {
		t.Run(string(hook), func(t *testing.T) { test(t, hook) })
	}
}

// forAHook runs a test of the control plane with the balancer in one hook, which follows from the test's name, and in
// both in `make test-hooks`. The data plane's own tests and those of forEachHook cover the path of packets in each
// hook.
func forAHook(t *testing.T, test func(t *testing.T, hook lb.Hook)) {
	if testenv.InTarget(testenv.HooksTarget) {
		forEachHook(t, test)
		return
	}
	hook := hooks[testenv.OneOf(t, len(hooks))]
	t.Run(string(hook), func(t *testing.T) { test(t, hook) })
}

// TestL2DSRMatrix sends requests for every family, protocol and scheduler: each answer must come from a backend that
// saw the client's own address, and turns must be exact.
func TestL2DSRMatrix(t *testing.T) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		s := newSegment(t, hook)
		for _, vip := range []netip.Addr{s.VIP4, s.VIP6} {
			for _, network := range []string{"tcp", "udp"} {
				for _, port := range []uint16{hashPort, turnPort} {
					to := netip.AddrPortFrom(vip, port)
					counts := s.askMany(t, network, to, 15)
					t.Logf("%s %s: %v", network, to, counts)
					if port == turnPort && (len(counts) != 3 || slices.Max(slices.Collect(maps.Values(counts))) != 10) {
						t.Errorf("%s %s: turns are not exact: %v", network, to, counts)
					}
				}
			}
		}
		status := s.status(t)
		if status.Hook.Name != hook || status.Hook.Generic {
			t.Errorf("the hook is %+v, want %s", status.Hook, hook)
		}
		for _, outcome := range status.Outcomes {
			if strings.HasPrefix(outcome.Name, "dropped") && outcome.Packets > 0 {
				t.Errorf("%d packets were %s", outcome.Packets, outcome.Name)
			}
		}
	})
}

// askMany sends n requests from each client, on a new connection each, and counts the servers that answered.
func (s *segment) askMany(t *testing.T, network string, to netip.AddrPort, n int) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, client := range s.Clients {
		own := client.IPv4
		if to.Addr().Is6() {
			own = client.IPv6
		}
		for range n {
			server, seen, err := ask(dial(t, client, network, to))
			if err != nil {
				t.Fatalf("%s asking %s %s: %v", client.Name, network, to, err)
			}
			if seen != own.String() {
				t.Errorf("%s %s: the backend saw %s, the client is %s", network, to, seen, own)
			}
			counts[server]++
		}
	}
	return counts
}

// TestReloadKeepsConnections removes a backend of one service and adds it again, repeatedly: open connections to its
// other backends continue, and so do new ones to an unchanged service.
func TestReloadKeepsConnections(t *testing.T) {
	t.Parallel()
	forEachHook(t, func(t *testing.T, hook lb.Hook) {
		s := newSegment(t, hook)
		to := netip.AddrPortFrom(s.VIP4, turnPort)
		open := map[string][]net.Conn{}
		for range 30 {
			connection := dial(t, s.Clients[0], "tcp", to)
			server, _, err := ask(connection)
			if err != nil {
				t.Fatal(err)
			}
			open[server] = append(open[server], connection)
		}
		stop, asked := make(chan struct{}), make(chan int)
		go s.askUntil(t, stop, asked, netip.AddrPortFrom(s.VIP4, hashPort))
		leaving := s.Servers[2]
		for i := range 10 {
			servers := s.Servers
			if i%2 == 0 {
				servers = s.Servers[:2]
			}
			s.configureTurns(t, hook, servers)
			s.reload(t, len(servers))
		}
		close(stop)
		t.Logf("%d connections were made during 10 reloads", <-asked)
		for server, connections := range open {
			if server == leaving.Name {
				continue
			}
			for _, connection := range connections {
				if got, _, err := ask(connection); err != nil || got != server {
					t.Errorf("a connection to %s was answered by %q: %v", server, got, err)
				}
			}
		}
	})
}

// TestHookChangesUnderConnections moves the balancer from TC to XDP and back, twice: open connections of a scheduler
// that remembers continue, and new ones are answered all the time.
func TestHookChangesUnderConnections(t *testing.T) {
	t.Parallel()
	s := newSegment(t, lb.HookTC)
	open := map[net.Conn]string{}
	for range 12 {
		connection := dial(t, s.Clients[0], "tcp", netip.AddrPortFrom(s.VIP4, turnPort))
		server, _, err := ask(connection)
		if err != nil {
			t.Fatal(err)
		}
		open[connection] = server
	}
	stop, asked := make(chan struct{}), make(chan int)
	go s.askUntil(t, stop, asked, netip.AddrPortFrom(s.VIP4, turnPort))
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC, lb.HookXDP, lb.HookTC} {
		s.configureTurns(t, hook, s.Servers)
		s.sendSIGHUP(t)
		s.eventually(t, "packets are taken in "+string(hook), func(status *ops.Status) bool {
			return status.Hook.Name == hook && allUp(status)
		})
		for connection, server := range open {
			if got, _, err := ask(connection); err != nil || got != server {
				t.Errorf("in %s, a connection to %s was answered by %q: %v", hook, server, got, err)
			}
		}
	}
	close(stop)
	t.Logf("%d connections were made during 4 changes", <-asked)
}

// askUntil makes one connection after another until it is stopped.
func (s *segment) askUntil(t *testing.T, stop <-chan struct{}, asked chan<- int, to netip.AddrPort) {
	made := 0
	defer func() { asked <- made }()
	for {
		select {
		case <-stop:
			return
		default:
		}
		var connection net.Conn
		err := s.Clients[1].Do(func() (err error) {
			connection, err = net.DialTimeout("tcp", to.String(), e2e.WaitLimit)
			return err
		})
		if err == nil {
			_, _, err = ask(connection)
			connection.Close()
		}
		if err != nil {
			t.Errorf("a connection made during a reload: %v", err)
			return
		}
		made++
	}
}

// reload makes the daemon read its file again, and waits until the services on turnPort have that many backends.
func (s *segment) reload(t *testing.T, backends int) {
	t.Helper()
	s.sendSIGHUP(t)
	s.eventually(t, fmt.Sprintf("%d backends are up", backends), func(status *ops.Status) bool {
		for _, service := range status.Services {
			up := 0
			for _, backend := range service.Backends {
				if backend.State == lb.Up {
					up++
				}
			}
			if service.Port == turnPort && (len(service.Backends) != backends || up != backends) {
				return false
			}
		}
		return true
	})
}

// TestBackendWithoutMAC sets a backend's link down: the status shows that, the others take its share, and it comes
// back.
func TestBackendWithoutMAC(t *testing.T) {
	t.Parallel()
	s := newSegment(t, lb.HookTC)
	lost := s.Servers[1]
	s.setLink(t, lost, false)
	s.eventually(t, lost.Name+" has no MAC", func(status *ops.Status) bool { return stateOf(status, lost) == lb.NoMAC })
	if counts := s.askMany(t, "tcp", netip.AddrPortFrom(s.VIP4, hashPort), 10); counts[lost.Name] > 0 ||
		len(counts) != 2 {
		t.Errorf("with %s away, answers came from %v", lost.Name, counts)
	}
	s.setLink(t, lost, true)
	s.eventually(t, lost.Name+" is back", func(status *ops.Status) bool { return stateOf(status, lost) == lb.Up })
}

// setLink disconnects a host at its switch port, or connects it again. Its own end stays up: setting that down would
// remove its IPv6 addresses.
func (s *segment) setLink(t *testing.T, host *lab.Host, up bool) {
	t.Helper()
	err := s.Switch.Do(func() error {
		port, err := netlink.LinkByName(host.Port)
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(port)
		}
		return netlink.LinkSetDown(port)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// stateOf returns the state of a host as a backend of all services, or "" while they differ.
func stateOf(status *ops.Status, host *lab.Host) (state lb.BackendState) {
	for _, service := range status.Services {
		for _, backend := range service.Backends {
			switch {
			case backend.Name != host.Name:
			case state == "":
				state = backend.State
			case state != backend.State:
				return ""
			}
		}
	}
	return state
}
