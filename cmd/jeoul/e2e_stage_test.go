// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The ports of a stage's services. Each protocol has two: the first is scheduled by hash and has backends of the VIP's
// family; the second is scheduled by turns and has, if the mode can cross families, backends of the other family.
const (
	webPort, otherWebPort = 80, 81
	dnsPort, otherDNSPort = 53, 54
)

// portShift is the offset that the modes that translate add to a port: forgotten replies have a port that no service
// has.
var portShift = map[lb.Mode]uint16{lb.NAT: 8000, lb.FullNAT: 9000}

// The ports from which full NAT sends.
const firstPoolPort, lastPoolPort = 20000, 20999

// replyTable is the backends' routing table for packets from their own addresses: replies of mode nat, whose path to
// the clients leads through the balancer.
const replyTable = 100

// path is the mode, the VIP and the parameters by which services of a stage differ, besides the port.
type path struct {
	mode lb.Mode
	vip  netip.Addr
	// pool is the address from which full NAT sends.
	pool netip.Addr
	dscp uint8
}

// matrixTarget is the target that runs end-to-end tests with every mode, family, check and fault, where
// `make test` runs one case of each kind.
const matrixTarget = "test-matrix"

// vrrpTarget is the target of tests of VRRP that measure, or that nothing else on the machine may stop.
const vrrpTarget = "test-vrrp"

// oneOfEach returns a path for each mode, of either family in turns; in `make test-matrix` it returns all paths.
func oneOfEach() (chosen []path) {
	for i, p := range paths() {
		if testenv.InTarget(matrixTarget) || p.vip.Is6() == (i/2%2 == 1) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// String returns "ipip/IPv6", which names a subtest too.
func (p path) String() string { return string(p.mode) + "/" + familyName(p.vip) }

func familyName(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// paths returns a VIP of each family for each mode.
func paths() []path {
	var all []path
	for i, mode := range lb.PacketModes {
		four := path{mode: mode, vip: netip.AddrFrom4([4]byte{198, 18, 0, byte(100 + i)}),
			pool: netip.MustParseAddr("198.18.0.99")}
		six := path{mode: mode, vip: netip.AddrFrom16([16]byte{0x20, 1, 0, 2, 14: 1, 15: byte(i)}),
			pool: netip.MustParseAddr("2001:2::99")}
		if mode == lb.DSCP {
			four.dscp, six.dscp = 10, 46
		}
		all = append(all, four, six)
	}
	return all
}

// crosses reports whether the second service of a protocol has backends of the other family.
func (p path) crosses() bool { return p.mode.Tunnels() }

// stage is a laboratory with a balancer that has services in every mode, and
// real servers behind all of them.
type stage struct {
	*lab.Lab
	*balancer
	hook   lb.Hook
	files  *e2e.Files
	webs   map[string]*e2e.Web
	dns    map[string]*e2e.DNS
	agents map[string]*lab.Process
}

// newStage builds the stage, and starts everything. The web servers have files of these sizes, in bytes.
func newStage(t *testing.T, hook lb.Hook, clients int, sizes ...int64) *stage {
	t.Helper()
	s := buildStage(t, hook, clients, sizes...)
	for _, server := range s.Servers {
		s.startAgent(t, server)
		s.startServers(t, server)
	}
	s.start(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("packets ended so:%s", ended(s.outcomes(t)))
		}
	})
	return s
}

// buildStage builds the laboratory and prepares it; no program of ours runs yet.
func buildStage(t *testing.T, hook lb.Hook, clients int, sizes ...int64) *stage {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: clients, Servers: 3})
	s := &stage{Lab: l, balancer: newBalancer(t, l.Balancer), hook: hook,
		files: e2e.MakeFiles(t, l.Dir, sizes...),
		webs:  map[string]*e2e.Web{}, dns: map[string]*e2e.DNS{}, agents: map[string]*lab.Process{}}
	for _, server := range l.Servers {
		if err := server.Do(func() error { return s.routeReplies(server) }); err != nil {
			t.Fatalf("lead the replies of %s through the balancer: %v", server.Name, err)
		}
	}
	s.configure(t, hook, s.configuration())
	return s
}

// startServers starts the servers of a backend, on all of its addresses.
func (s *stage) startServers(t *testing.T, server *lab.Host) {
	t.Helper()
	web, dns := []uint16{webPort, otherWebPort}, []uint16{dnsPort, otherDNSPort}
	for _, shift := range portShift {
		web = append(web, webPort+shift, otherWebPort+shift)
		dns = append(dns, dnsPort+shift, otherDNSPort+shift)
	}
	s.webs[server.Name] = e2e.StartWeb(t, server, s.files, web...)
	s.dns[server.Name] = e2e.StartDNS(t, server, dns...)
}

// startAgent starts a backend's agent, which adds the VIPs, and waits until it is ready.
func (s *stage) startAgent(t *testing.T, server *lab.Host) {
	t.Helper()
	log := &cmdtest.SyncBuffer{}
	process := jeoul(t, server, log, agentArguments(server)...)
	s.agents[server.Name] = process
	testenv.Eventually(t, e2e.WaitLimit, fmt.Sprintf("the agent of %s is ready", server.Name), func() bool {
		select {
		case <-process.Done():
			t.Fatalf("the agent of %s ended: %v\n%s", server.Name, process.Wait(), log)
		default:
		}
		return strings.Contains(log.String(), "ready")
	})
}

// agentArguments returns the arguments for all modes that need an agent on a backend.
func agentArguments(server *lab.Host) []string {
	arguments := []string{"agent", "--state-dir", filepath.Join(server.Dir, "state")}
	for _, mode := range lb.PacketModes {
		if !mode.Translates() {
			arguments = append(arguments, "--mode", string(mode))
		}
	}
	for _, p := range paths() {
		switch {
		case p.dscp != 0:
			arguments = append(arguments, "--dscp", fmt.Sprintf("%d=%s", p.dscp, p.vip))
		case !p.mode.Translates():
			arguments = append(arguments, "--vip", p.vip.String())
		}
	}
	return arguments
}

// routeReplies routes packets from the backend's own addresses to the clients through the balancer. It runs inside the
// backend.
func (s *stage) routeReplies(server *lab.Host) error {
	link, err := netlink.LinkByName(server.Interface)
	if err != nil {
		return err
	}
	for _, ends := range []struct{ from, via netip.Addr }{{server.IPv4, s.Balancer.IPv4},
		{server.IPv6, s.Balancer.IPv6}} {
		family := netlink.FAMILY_V4
		if ends.from.Is6() {
			family = netlink.FAMILY_V6
		}
		rule := netlink.NewRule()
		rule.Family, rule.Table, rule.Src = family, replyTable, hostNet(ends.from)
		errs := []error{netlink.RuleAdd(rule)}
		for _, client := range s.clientNets(family) {
			errs = append(errs, netlink.RouteAdd(&netlink.Route{
				LinkIndex: link.Attrs().Index, Table: replyTable, Dst: client, Gw: ends.via.AsSlice()}))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return e2e.LeadToFar(s.Balancer, replyTable)
}

// clientNets returns the addresses of the clients of the segment.
func (s *stage) clientNets(family int) (nets []*net.IPNet) {
	for _, client := range s.Clients {
		if family == netlink.FAMILY_V4 {
			nets = append(nets, hostNet(client.IPv4))
		} else {
			nets = append(nets, hostNet(client.IPv6))
		}
	}
	return nets
}

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// configuration returns a configuration with four services for each path, and the pool.
func (s *stage) configuration() entry {
	var services []entry
	pool := map[string]bool{}
	for _, p := range paths() {
		for _, port := range []uint16{webPort, otherWebPort, dnsPort, otherDNSPort} {
			services = append(services, s.service(p, port))
		}
		if p.mode == lb.FullNAT {
			pool[p.pool.String()] = true
		}
	}
	return entry{"services": services, "fullnat": entry{
		"addresses": sortedKeys(pool), "ports": fmt.Sprintf("%d-%d", firstPoolPort, lastPoolPort)}}
}

func sortedKeys(set map[string]bool) (keys []string) {
	for key := range set {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// service returns the service of a path on a port.
func (s *stage) service(p path, port uint16) entry {
	second := port == otherWebPort || port == otherDNSPort
	protocol, scheduler := lb.TCP, lb.Maglev
	if port == dnsPort || port == otherDNSPort {
		protocol = lb.UDP
	}
	if second {
		scheduler = lb.RoundRobin
	}
	var backends []entry
	for _, server := range s.Servers {
		address := server.IPv4
		if p.vip.Is6() != (second && p.crosses()) {
			address = server.IPv6
		}
		backends = append(backends, entry{"name": server.Name, "address": address.String(), "port": port +
			portShift[p.mode]})
	}
	service := entry{"name": fmt.Sprintf("%s-%s-%d", p.mode, familyName(p.vip), port), "vip": p.vip.String(),
		"port":     port,
		"protocol": protocol.String(), "mode": string(p.mode), "scheduler": string(scheduler), "backends": backends}
	if p.dscp != 0 {
		service["dscp"] = p.dscp
	}
	return service
}

// own returns a host's address of the VIP's family.
func (p path) own(host *lab.Host) netip.Addr {
	if p.vip.Is4() {
		return host.IPv4
	}
	return host.IPv6
}

// checkSeen returns an error if a server saw another client or address than the mode promises.
func (p path) checkSeen(seen e2e.Seen, client netip.Addr, server *lab.Host) error {
	wantClient, wantLocal := client, p.vip
	switch p.mode {
	case lb.FullNAT:
		wantClient, wantLocal = p.pool, p.own(server)
		if port := seen.Client.Port(); port < firstPoolPort || port > lastPoolPort {
			return fmt.Errorf("%s saw the client's port %d, which is not one of the pool's", seen.Server, port)
		}
	case lb.NAT:
		wantLocal = p.own(server)
	}
	if seen.Client.Addr() != wantClient || seen.Local.Addr() != wantLocal {
		return fmt.Errorf("%s saw %s ask %s, want %s and %s", seen.Server, seen.Client, seen.Local.Addr(),
			wantClient, wantLocal)
	}
	return nil
}

// server returns the server with a name.
func (s *stage) server(name string) (*lab.Host, error) {
	for _, server := range s.Servers {
		if server.Name == name {
			return server, nil
		}
	}
	return nil, fmt.Errorf("%q answered, which is no server of the laboratory", name)
}

// bounded returns a context for an operation that takes moments.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), e2e.WaitLimit)
	t.Cleanup(cancel)
	return ctx
}
