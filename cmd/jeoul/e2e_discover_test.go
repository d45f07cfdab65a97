// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// discoveryStage is a balancer with a service whose backends are listed in a file, and one whose backends BIND names.
type discoveryStage struct {
	*lab.Lab
	*balancer
	named *e2e.DNS
	list  string
}

// put lists the first n servers in the file, or names them in the zone.
func (d *discoveryStage) put(t *testing.T, n int) {
	t.Helper()
	var list strings.Builder
	list.WriteString("backends:\n")
	for _, server := range d.Servers[:n] {
		fmt.Fprintf(&list, "  - {name: %s, address: %s, port: 8080}\n", server.Name, server.IPv4)
	}
	e2e.ReplaceFile(t, d.list, list.String())
}

func (d *discoveryStage) name(t *testing.T, n int) {
	t.Helper()
	records := ""
	for _, server := range d.Servers[:n] {
		records += fmt.Sprintf("web 1 A %s\n", server.IPv4)
	}
	d.named.SetRecords(t, records)
}

// expectBackends waits until both services have the first n servers.
func (d *discoveryStage) expectBackends(t *testing.T, n int) {
	t.Helper()
	d.eventually(t, fmt.Sprintf("%d backends of each service are up", n), func(status *ops.Status) bool {
		up := 0
		for _, s := range status.Services {
			for _, b := range s.Backends {
				if b.State == lb.Up && b.Origin != "" {
					up++
				}
			}
			if len(s.Backends) != n {
				return false
			}
		}
		return up == 2*n
	})
}

func newDiscoveryStage(t *testing.T) *discoveryStage {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 3})
	d := &discoveryStage{Lab: l, balancer: newBalancer(t, l.Balancer)}
	d.list = filepath.Join(l.Balancer.Dir, "web.backends.yaml")
	d.named = e2e.StartDNS(t, l.Clients[0], 5353)
	for _, server := range l.Servers {
		nameServer{server}.serveTCP(t, 8080)
		if err := server.RouteThrough(l.Balancer, netip.PrefixFrom(l.Clients[0].IPv4, 32), true); err != nil {
			t.Fatal(err)
		}
	}
	service := func(name string, port int, origin entry) entry {
		return entry{"name": name, "vip": "198.18.0.105", "port": port, "mode": "fullnat", "scheduler": "rr",
			"discover": origin}
	}
	d.configure(t, lb.HookTC, entry{"fullnat": entry{"addresses": []string{"198.18.0.99"}, "ports": "20000-29999"},
		"services": []entry{
			service("listed", 80, entry{"file": entry{"path": d.list}}),
			service("named", 81,
				entry{"dns": entry{"name": "web.lab.test.", "port": 8080,
					"servers": []string{netip.AddrPortFrom(l.Clients[0].IPv4, 5353).String()}}}),
		}})
	return d
}

// TestDiscoveredBackends: while a list is written repeatedly, and a zone of BIND is reloaded, no connection to a
// remaining backend breaks. If both sources are missing, and the balancer starts again, all backends are still there.
// JEOUL_TEST_CHANGES is how often the list is written.
func TestDiscoveredBackends(t *testing.T) {
	t.Parallel()
	d := newDiscoveryStage(t)
	d.put(t, 3)
	d.name(t, 3)
	d.start(t)
	d.expectBackends(t, 3)
	flows := map[string]map[string]net.Conn{}
	for name, port := range map[string]uint16{"listed": 80, "named": 81} {
		flows[name] = flowsTo(t, d.Lab, "tcp", netip.AddrPortFrom(netip.MustParseAddr("198.18.0.105"), port))
	}
	stay := func() {
		t.Helper()
		for service, of := range flows {
			for _, server := range d.Servers[:2] {
				if name, err := askName(of[server.Name]); err != nil || name != server.Name {
					t.Fatalf("%s: a connection to %s is answered by %q, %v", service, server.Name, name, err)
				}
			}
		}
	}
	changes := int(numberOf(t, "JEOUL_TEST_CHANGES", 40))
	for i := range changes {
		d.put(t, 2+i%2)
		if i%(changes/4) == 0 {
			d.name(t, 2+i/(changes/4)%2)
		}
		stay()
	}
	for _, n := range []int{2, 3} {
		d.put(t, n)
		d.name(t, n)
		d.expectBackends(t, n)
		stay()
	}
	if err := os.Remove(d.list); err != nil {
		t.Fatal(err)
	}
	stop(t, d.named.Process)
	d.eventually(t, "both origins fail", func(status *ops.Status) bool {
		for _, s := range status.Services {
			if s.Discovered[0].Problem == "" || s.Discovered[0].AgeSeconds <= 0 {
				return false
			}
		}
		return true
	})
	d.expectBackends(t, 3)
	stay()
	kill(t, d.daemon)
	d.start(t)
	d.expectBackends(t, 3)
	stay()
	t.Logf("%d changes of the list", changes)
}
