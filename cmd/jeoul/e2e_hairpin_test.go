// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// containerHost is a balancer whose backends are containers behind its bridge; a client is outside.
type containerHost struct {
	*balancer
	hook lb.Hook
	// answers: packets that the services cannot forward are answered.
	answers bool
	// at are the hosts: outside, and the containers web01, web02 and other.
	at map[string]*namespace.Namespace
}

// Networks of a containerHost: outside, and of the bridge. The balancer is .1 (::1) in each.
var (
	outsideNets = []netip.Prefix{netip.MustParsePrefix("10.78.1.1/24"), netip.MustParsePrefix("2001:db8:78:1::1/64")}
	bridgeNets  = []netip.Prefix{netip.MustParsePrefix("10.78.9.1/24"), netip.MustParsePrefix("2001:db8:78:9::1/64")}
	hairpinVIPs = []netip.Addr{netip.MustParseAddr("10.78.1.100"), netip.MustParseAddr("2001:db8:78:1::100")}
)

// containers have these numbers in the bridge's networks.
var containers = map[string]byte{"web01": 11, "web02": 12, "other": 13}

// numbered returns a network's host with a number.
func numbered(p netip.Prefix, number byte) netip.Prefix {
	bytes := p.Addr().AsSlice()
	bytes[len(bytes)-1] = number
	a, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(a, p.Bits())
}

func newContainerHost(t *testing.T, hook lb.Hook) *containerHost {
	t.Helper()
	// It uses the laboratory to run a program on a host.
	l := newLab(t, lab.Spec{Clients: 1, Servers: 1})
	h := &containerHost{balancer: newBalancer(t, l.Balancer), hook: hook, at: map[string]*namespace.Namespace{}}
	var own *namespace.Namespace
	if err := l.Balancer.Do(func() (err error) { own, err = namespace.Current(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })
	h.addBridge(t, own)
	// The laboratory leaves no ports free.
	testenv.In(t, own, func() error { return testenv.WriteSysctl("net/ipv4/ip_local_port_range", "32768 60999") })
	h.addLink(t, own, "outside", "up", outsideNets, outsideNets, 2)
	for name, number := range containers {
		h.addLink(t, own, name, "c-"+name, nil, bridgeNets, number)
		testenv.In(t, own, func() error {
			port, err := netlink.LinkByName("c-" + name)
			if err != nil {
				return err
			}
			bridge, err := netlink.LinkByName("br0")
			if err != nil {
				return err
			}
			return netlink.LinkSetMaster(port, bridge)
		})
		h.serve(t, name)
	}
	return h
}

// addBridge makes the bridge of the containers.
func (h *containerHost) addBridge(t *testing.T, own *namespace.Namespace) {
	t.Helper()
	testenv.In(t, own, func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		if err := testenv.WriteSysctl("net/ipv6/conf/br0/accept_dad", "0"); err != nil {
			return err
		}
		for _, p := range bridgeNets {
			address, err := netlink.ParseAddr(p.String())
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(bridge, address); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(bridge)
	})
}

// addLink connects the balancer's host to another, whose default routes lead back.
func (h *containerHost) addLink(t *testing.T, own *namespace.Namespace, name, device string, ours, nets []netip.Prefix,
	number byte) {
	t.Helper()
	ns := testenv.Namespace(t)
	var theirs []netip.Prefix
	for _, p := range nets {
		theirs = append(theirs, numbered(p, number))
	}
	testenv.Veth(t, testenv.End{Namespace: own, Name: device, Addresses: ours},
		testenv.End{Namespace: ns, Name: "eth0", Addresses: theirs})
	testenv.In(t, ns, func() error {
		for _, p := range nets {
			if err := netlink.RouteAdd(&netlink.Route{Gw: p.Addr().AsSlice()}); err != nil {
				return err
			}
		}
		return nil
	})
	h.at[name] = ns
}

// start runs the daemon and waits until every backend is up. A program is verified for each interface,
// which takes seconds on a busy machine.
func (h *containerHost) start(t *testing.T) {
	t.Helper()
	h.daemon = jeoul(t, h.host, &h.log, h.arguments()...)
	h.within(t, 3*e2e.WaitLimit, "every backend is up", allUp)
}

// hairpinCell is a way to reach a container: a VIP, a protocol, and the container that answers.
type hairpinCell struct {
	vip      netip.Addr
	protocol string
	backend  string
}

// port is the service's port; the backend's port is 8000 higher.
func (c hairpinCell) port() uint16 {
	port := uint16(80)
	if c.protocol == "udp" {
		port++
	}
	return port + 10*uint16(containers[c.backend]-containers["web01"])
}

func (c hairpinCell) name() string {
	return fmt.Sprintf("%s-%s-%s", c.backend, c.protocol, familyName(c.vip))
}

func hairpinCells() (cells []hairpinCell) {
	for _, vip := range hairpinVIPs {
		for _, protocol := range []string{"tcp", "udp"} {
			for _, backend := range []string{"web01", "web02"} {
				cells = append(cells, hairpinCell{vip, protocol, backend})
			}
		}
	}
	return cells
}

// bridgeNet is the bridge's network of the VIP's family.
func (c hairpinCell) bridgeNet() netip.Prefix {
	if c.vip.Is4() {
		return bridgeNets[0]
	}
	return bridgeNets[1]
}

// serve answers on a container: each line with the container's name and the client's address that it sees.
func (h *containerHost) serve(t *testing.T, name string) {
	t.Helper()
	for _, cell := range hairpinCells() {
		if cell.backend != name {
			continue
		}
		at := netip.AddrPortFrom(numbered(cell.bridgeNet(), containers[name]).Addr(), 8000+cell.port()).String()
		testenv.In(t, h.at[name], func() error {
			if cell.protocol == "udp" {
				connection, err := net.ListenPacket("udp", at)
				if err == nil {
					t.Cleanup(func() { connection.Close() })
					go answerDatagrams(connection, name)
				}
				return err
			}
			listener, err := net.Listen("tcp", at)
			if err == nil {
				t.Cleanup(func() { listener.Close() })
				go answerConnections(listener, name)
			}
			return err
		})
	}
}

func answerDatagrams(connection net.PacketConn, name string) {
	buffer := make([]byte, 64)
	for {
		_, from, err := connection.ReadFrom(buffer)
		if err != nil {
			return
		}
		// Clients that are gone do not matter.
		_, _ = connection.WriteTo(fmt.Appendf(nil, "%s saw %s\n", name, hostOf(from)), from)
	}
}

func answerConnections(listener net.Listener, name string) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			for lines := bufio.NewScanner(connection); lines.Scan(); {
				if _, err := fmt.Fprintf(connection, "%s saw %s\n", name, hostOf(connection.RemoteAddr())); err != nil {
					return
				}
			}
		}()
	}
}

func hostOf(a net.Addr) string { return netip.MustParseAddrPort(a.String()).Addr().String() }

// useMode writes the configuration, with additional keys.
func (h *containerHost) useMode(t *testing.T, mode lb.Mode, keys entry) {
	t.Helper()
	var services []entry
	for _, cell := range hairpinCells() {
		service := entry{"name": cell.name(), "vip": cell.vip.String(), "port": cell.port(), "protocol": cell.protocol,
			"mode": string(mode), "scheduler": "maglev",
			"backends": []entry{{"name": cell.backend,
				"address": numbered(cell.bridgeNet(), containers[cell.backend]).Addr().String(), "port": 8000 +
					cell.port()}}}
		if h.answers {
			service["limits"] = entry{"refuse": "reset"}
		}
		services = append(services, service)
	}
	configuration := entry{"interfaces": []string{"up", "br0"}, "hook": string(h.hook), "socket": h.socket,
		"services": services}
	maps.Copy(configuration, keys)
	if err := os.WriteFile(h.config, yamlOf(t, configuration), 0o644); err != nil {
		t.Fatal(err)
	}
}

// dial connects a host to a cell's VIP, by connect() for both protocols.
func (h *containerHost) dial(t *testing.T, from string, cell hairpinCell) (connection net.Conn, err error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), e2e.WaitLimit)
	defer stop()
	err = h.at[from].Do(func() (err error) {
		connection, err = (&net.Dialer{}).DialContext(ctx, cell.protocol,
			netip.AddrPortFrom(cell.vip, cell.port()).String())
		return err
	})
	return connection, err
}

// askUntil sends a line, until it is answered or refused, and returns the answer.
func askUntil(connection net.Conn, retry time.Duration) (answer string, err error) {
	buffer := make([]byte, 64)
	for end := time.Now().Add(e2e.WaitLimit); time.Now().Before(end); {
		if err := connection.SetDeadline(time.Now().Add(retry)); err != nil {
			return "", err
		}
		if _, err = fmt.Fprintln(connection, "hello"); err != nil {
			return "", err
		}
		n := 0
		if n, err = connection.Read(buffer); err == nil {
			return strings.TrimSpace(string(buffer[:n])), nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return "", err
		}
	}
	return "", err
}

// ask sends one request from a host to a cell.
func (h *containerHost) ask(t *testing.T, from string, cell hairpinCell) (string, error) {
	t.Helper()
	connection, err := h.dial(t, from, cell)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	retry := e2e.WaitLimit
	if cell.protocol == "udp" {
		retry = time.Second // a datagram may be lost during neighbour resolution
	}
	return askUntil(connection, retry)
}

// TestHairpin: a container that sends to the VIP is served, by itself or by another container, and so is a neighbour of
// the backends, each with the bridge's address as its source; a client outside is served with its own address.
func TestHairpin(t *testing.T) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		h := newContainerHost(t, hook)
		h.useMode(t, lb.NAT, nil)
		h.start(t)
		for _, cell := range hairpinCells() {
			for _, from := range []string{"outside", "web01", "web02", "other"} {
				sees := cell.bridgeNet().Addr()
				if from == "outside" {
					sees = numbered(outsideNets[0], 2).Addr()
					if cell.vip.Is6() {
						sees = numbered(outsideNets[1], 2).Addr()
					}
				}
				got, err := h.ask(t, from, cell)
				if want := fmt.Sprintf("%s saw %s", cell.backend, sees); err != nil || got != want {
					t.Errorf("%s asks %s: %q, %v, want %q", from, cell.name(), got, err, want)
				}
			}
		}
		h.eventually(t, "the status tells of hairpins", func(status *ops.Status) bool {
			for _, service := range status.Services {
				if service.Hairpin == nil || len(service.Hairpin.Clients) != 1 || len(service.Hairpin.From) != 1 {
					return false
				}
			}
			return true
		})
	})
}

// TestHairpinOutlivesARestart: a flow of a near client continues while the daemon is away, and after that, from the
// same address.
func TestHairpinOutlivesARestart(t *testing.T) {
	testenv.Target(t, matrixTarget)
	t.Parallel()
	h := newContainerHost(t, lb.HookTC)
	h.useMode(t, lb.NAT, nil)
	h.start(t)
	var open []net.Conn
	cells := hairpinCells()
	for _, cell := range cells {
		connection, err := h.dial(t, "web01", cell)
		if err != nil {
			t.Fatalf("web01 asks %s: %v", cell.name(), err)
		}
		defer connection.Close()
		open = append(open, connection)
	}
	goOn := func(when string) {
		t.Helper()
		for i, cell := range cells {
			got, err := askUntil(open[i], e2e.WaitLimit)
			if want := fmt.Sprintf("%s saw %s", cell.backend, cell.bridgeNet().Addr()); err != nil || got != want {
				t.Errorf("%s, web01 asks %s: %q, %v, want %q", when, cell.name(), got, err, want)
			}
		}
	}
	goOn("at first")
	kill(t, h.daemon)
	goOn("while the daemon is away")
	h.start(t)
	goOn("after a restart")
}

// TestContainersUseFullNAT: full NAT needs no special configuration for containers that send to the VIP.
func TestContainersUseFullNAT(t *testing.T) {
	t.Parallel()
	h := newContainerHost(t, lb.HookTC)
	pool := []string{"10.78.1.99", "2001:db8:78:1::99"}
	h.useMode(t, lb.FullNAT, entry{"fullnat": entry{"addresses": pool, "ports": "20000-29999"}})
	h.start(t)
	for _, cell := range hairpinCells() {
		sees := pool[0]
		if cell.vip.Is6() {
			sees = pool[1]
		}
		for _, from := range []string{"web01", "other"} {
			got, err := h.ask(t, from, cell)
			if want := fmt.Sprintf("%s saw %s", cell.backend, sees); err != nil || got != want {
				t.Errorf("%s asks %s: %q, %v, want %q", from, cell.name(), got, err, want)
			}
		}
	}
}

// TestHairpinWithoutPortsIsRefused: if the host's own connections use all ports, a container that sends to the VIP gets
// an error immediately, with the reason in the log.
func TestHairpinWithoutPortsIsRefused(t *testing.T) {
	t.Parallel()
	h := newContainerHost(t, lb.HookTC)
	if err := h.host.Do(func() error {
		return testenv.WriteSysctl("net/ipv4/ip_local_port_range", "1024 65535")
	}); err != nil {
		t.Fatal(err)
	}
	h.answers = true
	h.useMode(t, lb.NAT, nil)
	h.start(t)
	for _, cell := range hairpinCells() {
		if got, err := h.ask(t, "web01", cell); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("web01 asks %s: %q, %v, and should be refused", cell.name(), got, err)
		}
	}
	h.eventually(t, "the status says why", func(status *ops.Status) bool {
		return slices.ContainsFunc(status.Problems, func(problem string) bool {
			return strings.Contains(problem, "ip_local_port_range")
		})
	})
}
