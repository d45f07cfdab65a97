// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// narrowMTU is the MTU of the router's path between balancer and backend, in bytes; uploaded is the size of a client's
// upload through it.
const (
	narrowMTU = 1300
	uploaded  = 1 << 20
)

// TestNarrowRouter uploads through tunnels whose path leads over a router with a smaller MTU than the balancer's link:
// the router reports that to the balancer, and the balancer to the client.
func TestNarrowRouter(t *testing.T) {
	t.Parallel()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 2})
	backend, router := l.Servers[0], l.Servers[1]
	within(t, router, func() error { return addNarrowRouter(router, backend) })
	within(t, l.Balancer, func() error { return routeOver(l.Balancer, router, backend) })
	within(t, l.Clients[0], func() error { return sendSingly(l.Clients[0]) })
	log := &cmdtest.SyncBuffer{}
	jeoul(t, backend, log, "agent", "--vip", l.VIP4.String(), "--mode", "ipip", "--mode", "gue", "--state-dir",
		filepath.Join(backend.Dir, "state"))
	testenv.Eventually(t, e2e.WaitLimit, "the agent is ready", func() bool {
		return strings.Contains(log.String(), "ready")
	})

	b := newBalancer(t, l.Balancer)
	var services []entry
	for i, to := range []netip.Addr{backend.IPv4, backend.IPv6} {
		for j, mode := range []lb.Mode{lb.IPIP, lb.GUE} {
			port := uint16(8001 + 2*i + j)
			takeUploads(t, backend, port)
			services = append(services, entry{"name": fmt.Sprintf("%s-%s", mode, familyName(to)),
				"vip": l.VIP4.String(), "port": port, "protocol": "tcp",
				"mode": string(mode), "scheduler": "maglev",
				"backends": []entry{{"name": "far", "address": to.String(), "port": port}}})
		}
	}
	b.configure(t, lb.HookTC, entry{"services": services})
	b.start(t)
	for i, service := range services {
		t.Run(service["name"].(string), func(t *testing.T) {
			if err := l.Clients[0].Do(func() error {
				return upload(netip.AddrPortFrom(l.VIP4, uint16(8001+i)))
			}); err != nil {
				t.Error(err)
			}
			b.eventually(t, "the way is known to be narrow", func(s *ops.Status) bool {
				return s.Services[i].Backends[0].MTU == narrowMTU
			})
		})
	}
}

// addNarrowRouter makes a host a router to another that forwards no packet larger than narrowMTU. It runs inside the
// router.
func addNarrowRouter(router, to *lab.Host) error {
	link, err := netlink.LinkByName(router.Interface)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range []string{"net/ipv4/ip_forward=1", "net/ipv6/conf/all/forwarding=1",
		"net/ipv4/conf/all/send_redirects=0",
		"net/ipv4/conf/" + router.Interface + "/send_redirects=0"} {
		name, value, _ := strings.Cut(name, "=")
		errs = append(errs, testenv.WriteSysctl(name, value))
	}
	for _, addr := range []netip.Addr{to.IPv4, to.IPv6} {
		// Without the lock it would bound only the router's own packets. The MTU of the interface for IPv6 would do
		// too, but the kernel resets it when the link is up.
		errs = append(errs,
			netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostNet(addr), MTU: narrowMTU,
				MTULock: true,
				Scope:   netlink.SCOPE_LINK}))
	}
	return errors.Join(errs...)
}

// sendSingly makes a host send each segment in a separate packet. Several in one, as they pass between namespaces, fit
// in any case: a router does not look into a tunnel for the size of each. It runs inside the host.
func sendSingly(host *lab.Host) error {
	link, err := netlink.LinkByName(host.Interface)
	if err != nil {
		return err
	}
	return netlink.LinkSetGSOMaxSegs(link, 1)
}

// routeOver routes a host's packets for another host over a router. It runs inside the host.
func routeOver(host, router, to *lab.Host) error {
	link, err := netlink.LinkByName(host.Interface)
	if err != nil {
		return err
	}
	var errs []error
	for _, ends := range [][2]netip.Addr{{to.IPv4, router.IPv4}, {to.IPv6, router.IPv6}} {
		errs = append(errs,
			netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostNet(ends[0]),
				Gw: ends[1].AsSlice()}))
	}
	return errors.Join(append(errs, testenv.WriteSysctl("net/ipv6/conf/"+host.Interface+"/accept_redirects", "0"))...)
}

// takeUploads reads clients' uploads on a port, and answers with their size.
func takeUploads(t *testing.T, host *lab.Host, port uint16) {
	t.Helper()
	var listener net.Listener
	within(t, host, func() (err error) {
		listener, err = net.Listen("tcp4", fmt.Sprintf(":%d", port))
		return err
	})
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			n, _ := io.Copy(io.Discard, connection)
			fmt.Fprint(connection, n)
			connection.Close()
		}
	}()
}

// upload sends to a service, and checks the answer that everything has arrived. It runs inside a client.
func upload(to netip.AddrPort) error {
	connection, err := net.DialTimeout("tcp", to.String(), e2e.WaitLimit)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(e2e.WaitLimit)); err != nil {
		return err
	}
	if _, err := connection.Write(make([]byte, uploaded)); err != nil {
		return err
	}
	if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(connection)
	if err == nil && string(got) != fmt.Sprint(uploaded) {
		err = fmt.Errorf("%s bytes arrived, want %d", got, uploaded)
	}
	return err
}
