// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// multiLinkBalancer is a balancer with cables to several networks: each has a client, and the last one has the
// backends. Its configuration selects the interfaces on which packets are taken.
type multiLinkBalancer struct {
	*balancer
	hook  lb.Hook
	cable map[string]*namespace.Namespace
	hosts map[string]net.Listener // the backends, by their names
}

// multiLinkVIP is in no cable's network: clients have a route.
var multiLinkVIP = netip.MustParseAddr("10.77.99.100")

func newMultiLinkBalancer(t *testing.T, hook lb.Hook) *multiLinkBalancer {
	t.Helper()
	// It uses the laboratory to run a program on a host.
	l := newLab(t, lab.Spec{Clients: 1, Servers: 1})
	x := &multiLinkBalancer{balancer: newBalancer(t, l.Balancer), hook: hook, cable: map[string]*namespace.Namespace{},
		hosts: map[string]net.Listener{}}
	var own *namespace.Namespace
	if err := l.Balancer.Do(func() (err error) { own, err = namespace.Current(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })
	for i, name := range []string{"one", "two", "back"} {
		x.addLink(t, own, i+1, name)
	}
	for i, name := range []string{"web01", "web02", "web03"} {
		x.serve(t, name, netip.AddrFrom4([4]byte{10, 77, 3, byte(11 + i)}))
	}
	return x
}

// addLink connects the balancer to a network with a host.
func (x *multiLinkBalancer) addLink(t *testing.T, own *namespace.Namespace, i int, name string) {
	t.Helper()
	ns := testenv.Namespace(t)
	prefix := func(host int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(i), byte(host)}), 24)
	}
	theirs := []netip.Prefix{prefix(2)}
	if name == "back" {
		theirs = append(theirs, prefix(11), prefix(12), prefix(13))
	}
	testenv.Veth(t, testenv.End{Namespace: own, Name: name, Addresses: []netip.Prefix{prefix(1)}},
		testenv.End{Namespace: ns, Name: "eth0", Addresses: theirs})
	testenv.In(t, ns, func() error { return netlink.RouteAdd(&netlink.Route{Gw: prefix(1).Addr().AsSlice()}) })
	if x.hook == lb.HookXDP {
		// Frames that XDP sends to a veth need an XDP program at its peer, and complete checksums.
		pass, err := wire.NewPass([]wire.Port{{Name: name, Interface: "eth0", Do: ns.Do}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pass.Close() })
		testenv.In(t, ns, func() error {
			tool, err := ethtool.NewEthtool()
			if err != nil {
				return err
			}
			defer tool.Close()
			return tool.Change("eth0", map[string]bool{"tx-checksum-ip-generic": false})
		})
	}
	x.cable[name] = ns
}

// serve runs a backend that answers each line with its name.
func (x *multiLinkBalancer) serve(t *testing.T, name string, at netip.Addr) {
	t.Helper()
	testenv.In(t, x.cable["back"], func() (err error) {
		x.hosts[name], err = net.Listen("tcp4", netip.AddrPortFrom(at, webPort).String())
		return err
	})
	t.Cleanup(func() { x.hosts[name].Close() })
	go func() {
		for {
			connection, err := x.hosts[name].Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				for lines := bufio.NewScanner(connection); lines.Scan(); {
					if _, err := fmt.Fprintln(connection, name); err != nil {
						return
					}
				}
			}()
		}
	}()
}

// interfaces writes the configuration for these interfaces.
func (x *multiLinkBalancer) interfaces(t *testing.T, names ...string) {
	t.Helper()
	var backends []entry
	for i, name := range []string{"web01", "web02", "web03"} {
		backends = append(backends, entry{"name": name, "address": fmt.Sprintf("10.77.3.%d", 11+i)})
	}
	text := yamlOf(t, entry{"interfaces": names, "hook": string(x.hook), "socket": x.socket, "services": []entry{{
		"name": "web", "vip": multiLinkVIP.String(), "port": webPort, "mode": "nat", "scheduler": "rr",
		"backends": backends}}})
	if err := os.WriteFile(x.config, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// expectTakenOn waits until packets are taken on these interfaces, the first of which has the VIP, and on no other.
func (x *multiLinkBalancer) expectTakenOn(t *testing.T, names ...string) {
	t.Helper()
	// A program is verified for each interface, which takes seconds on a busy machine.
	x.within(t, 3*e2e.WaitLimit, "packets are taken on "+strings.Join(names, ", "), func(status *ops.Status) bool {
		var on []string
		for _, nic := range status.Interfaces {
			if nic.Hook.Name == x.hook {
				on = append(on, nic.Name)
			}
		}
		return slices.Equal(on, names) && allUp(status)
	})
	// The VIP is removed from the old interface when the new one serves.
	testenv.Eventually(t, e2e.WaitLimit, "the VIP is on "+names[0]+" only", func() bool {
		have, err := x.vipInterfaces()
		return err == nil && slices.Equal(have, names[:1])
	})
}

// vipInterfaces names the interfaces that have the VIP.
func (x *multiLinkBalancer) vipInterfaces() (names []string, err error) {
	err = x.host.Do(func() error {
		links, err := netdump.Links()
		for _, link := range links {
			addrs, failed := netdump.Consistent(func() ([]netlink.Addr, error) {
				return netlink.AddrList(link, netlink.FAMILY_V4)
			})
			err = errors.Join(err, failed)
			if slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.Equal(multiLinkVIP.AsSlice()) }) {
				names = append(names, link.Attrs().Name)
			}
		}
		return err
	})
	return names, err
}

// line is a connection on which lines are answered.
type line struct {
	net.Conn
	answers *bufio.Reader
	host    string
}

// open makes connections from a cable's network.
func (x *multiLinkBalancer) open(t *testing.T, cable string) (lines []*line) {
	t.Helper()
	for range 10 {
		l := &line{}
		testenv.In(t, x.cable[cable], func() (err error) {
			l.Conn, err = net.DialTimeout("tcp4", netip.AddrPortFrom(multiLinkVIP, webPort).String(), e2e.WaitLimit)
			return err
		})
		t.Cleanup(func() { l.Close() })
		l.answers = bufio.NewReader(l.Conn)
		var err error
		if l.host, err = l.ask(); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

func (l *line) ask() (string, error) {
	if err := l.SetDeadline(time.Now().Add(e2e.WaitLimit)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(l, "?\n"); err != nil {
		return "", err
	}
	return l.answers.ReadString('\n')
}

// expectAlive sends a line on each connection: all continue with their backends.
func expectAlive(t *testing.T, when string, all ...[]*line) {
	t.Helper()
	broken, n := 0, 0
	for _, l := range slices.Concat(all...) {
		n++
		if host, err := l.ask(); err != nil || host != l.host {
			broken++
			t.Logf("%s, a connection to %q was answered by %q: %v", when, l.host, host, err)
		}
	}
	if broken > 0 {
		t.Errorf("%s, connections are broken: %d of %d", when, broken, n)
	}
}

// busy keeps a connection busy until stop is called, which returns the number of wrong answers.
func (l *line) busy() (stop func() error) {
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		// Not all the time, or the verification of programs would be slow.
		every := time.NewTicker(10 * time.Millisecond)
		defer every.Stop()
		for {
			select {
			case <-end:
				ended <- nil
				return
			case <-every.C:
			}
			if host, err := l.ask(); err != nil || host != l.host {
				ended <- fmt.Errorf("answered by %q instead of %q: %w", host, l.host, err)
				return
			}
		}
	}()
	return func() error { close(end); return <-ended }
}

// TestInterfacesChangeByReload adds an interface, moves the VIP to another one, and removes the first, under continuing
// connections, also through a kill. A refused reload changes nothing, and nothing is left at the end.
func TestInterfacesChangeByReload(t *testing.T) {
	testenv.Target(t, matrixTarget)
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		x := newMultiLinkBalancer(t, hook)
		before := e2e.ReadSettings(t, x.host)
		state := filepath.Join(x.host.Dir, "state")
		x.interfaces(t, "one", "back")
		x.start(t)
		x.expectTakenOn(t, "one", "back")
		one := x.open(t, "one")
		stop1 := one[0].busy()

		x.interfaces(t, "one", "back", "two")
		x.sendSIGHUP(t)
		x.expectTakenOn(t, "one", "back", "two")
		two := x.open(t, "two")
		stop2 := two[0].busy()
		expectAlive(t, "with another interface", one[1:], two[1:])

		x.interfaces(t, "two", "one", "back")
		x.sendSIGHUP(t)
		x.expectTakenOn(t, "two", "one", "back")
		expectAlive(t, "with another first interface", one[1:], two[1:])
		if err := errors.Join(stop1(), stop2()); err != nil {
			t.Errorf("a connection that was busy meanwhile: %v", err)
		}

		kill(t, x.daemon)
		x.start(t)
		x.expectTakenOn(t, "two", "one", "back")
		expectAlive(t, "by another process", one, two)

		stop2 = two[0].busy()
		x.interfaces(t, "two", "back")
		x.sendSIGHUP(t)
		x.expectTakenOn(t, "two", "back")
		expectAlive(t, "without the interface that was the first", two[1:])

		x.interfaces(t, "none0", "back")
		x.sendSIGHUP(t)
		x.eventually(t, "the reload is refused", func(status *ops.Status) bool {
			return slices.ContainsFunc(status.Problems, func(p string) bool {
				return strings.Contains(p, `interface "none0"`)
			})
		})
		expectAlive(t, "after a refusal", two[1:])

		// A start makes a change that no reload accepts: it continues from the state of the previous process.
		leave(t, x.daemon)
		x.interfaces(t, "one", "back", "two")
		x.start(t)
		x.expectTakenOn(t, "one", "back", "two")
		if err := stop2(); err != nil {
			t.Errorf("a connection that was busy meanwhile: %v", err)
		}
		expectAlive(t, "by a start with other interfaces", two, x.open(t, "one"))
		stop(t, x.daemon)
		for _, line := range e2e.ReadSettings(t, x.host).Difference(before) {
			t.Errorf("after a stop: %s", line)
		}
		left, err := os.ReadDir(state)
		if err != nil || len(left) != 0 {
			t.Errorf("after a stop, there is left: %v, %v", left, err)
		}
	})
}
