// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// namesStage is a balancer with three services that have the same backends: one from the configuration, one from a list
// of backends, one from SRV records of BIND.
type namesStage struct {
	*lab.Lab
	*balancer
	bind *e2e.DNS
	// addresses are the zone's addresses of all names so far. A name that no longer has an SRV record keeps its
	// address: a balancer that has read the records before still queries it, and would find one backend fewer.
	addresses map[string]string
	// doors are the listeners that the servers' checks connect to.
	doors map[string]net.Listener
}

// namedServices are the services.
var namedServices = []string{"typed", "listed", "resolved"}

func namedPort(service string) uint16 {
	return map[string]uint16{"typed": 80, "listed": 81, "resolved": 82}[service]
}

func newNamesStage(t *testing.T) *namesStage {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 3})
	n := &namesStage{Lab: l, balancer: newBalancer(t, l.Balancer), doors: map[string]net.Listener{},
		addresses: map[string]string{}}
	n.bind = e2e.StartDNS(t, l.Clients[0], 5353)
	for _, server := range l.Servers {
		nameServer{server}.serveTCP(t, 8080)
		door := listenOn(t, server, checkedPort)
		t.Cleanup(func() { door.Close() })
		n.doors[server.Name] = door
	}
	return n
}

func (n *namesStage) list() string { return filepath.Join(n.Lab.Balancer.Dir, "backends.yaml") }

// put moves the names to servers, by a change of the configuration, of the list and of the zone.
func (n *namesStage) put(t *testing.T, names ...string) {
	t.Helper()
	list, records := "backends:\n", ""
	var typed []entry
	for i, name := range names {
		address := n.Servers[i].IPv4.String()
		typed = append(typed, entry{"name": name, "address": address, "port": 8080})
		list += fmt.Sprintf("  - {name: %s, address: %s, port: 8080}\n", name, address)
		records += fmt.Sprintf("_web._tcp 1 SRV 0 1 8080 %s\n", name)
		n.addresses[name] = address
	}
	for name, address := range n.addresses {
		records += fmt.Sprintf("%s 1 A %s\n", name, address)
	}
	service := func(name, key string, value any) entry {
		return entry{"name": name, "vip": "198.18.0.105", "port": namedPort(name), "mode": "fullnat", "scheduler": "rr",
			key:     value,
			"check": entry{"type": "tcp", "port": checkedPort, "interval": "300ms"}, "on_down": string(lb.KeepFlows)}
	}
	n.configure(t, lb.HookTC, entry{"fullnat": entry{"addresses": []string{"198.18.0.99"}, "ports": "20000-29999"},
		"services": []entry{
			service("typed", "backends", typed),
			service("listed", "discover", entry{"file": entry{"path": n.list()}}),
			service("resolved", "discover", entry{"dns": entry{"name": "_web._tcp.lab.test.", "type": "SRV",
				"servers": []string{netip.AddrPortFrom(n.Clients[0].IPv4, 5353).String()}}}),
		}})
	e2e.ReplaceFile(t, n.list(), list)
	n.bind.SetRecords(t, records)
	if n.daemon != nil {
		n.sendSIGHUP(t)
	}
}

// at waits until the names are at the servers, and returns the backends of each service by their first labels, in their
// state when all were there for the first time.
func (n *namesStage) at(t *testing.T, when string, names ...string) map[string]map[string]ops.Backend {
	t.Helper()
	first := map[string]map[string]ops.Backend{}
	n.within(t, 3*e2e.WaitLimit, when+": each name is at its address", func(status *ops.Status) bool {
		for _, s := range status.Services {
			if first[s.Name] != nil || len(s.Backends) != len(names) {
				continue
			}
			found := map[string]ops.Backend{}
			for _, b := range s.Backends {
				name, _, _ := strings.Cut(b.Name, ".")
				if i := slices.Index(names, name); i >= 0 && n.Servers[i].IPv4 == b.Address {
					found[name] = b
				}
			}
			if len(found) == len(names) {
				first[s.Name] = found
			}
		}
		return len(first) == len(namedServices)
	})
	return first
}

// newFlows opens connections, and counts the servers that answer.
func (n *namesStage) newFlows(t *testing.T, service string) map[string]int {
	t.Helper()
	met := map[string]int{}
	for range 12 {
		var c net.Conn
		within(t, n.Clients[0], func() (err error) {
			c, err = (&net.Dialer{Timeout: e2e.WaitLimit}).Dial("tcp",
				netip.AddrPortFrom(netip.MustParseAddr("198.18.0.105"), namedPort(service)).String())
			return err
		})
		name, err := askName(c)
		c.Close()
		if err != nil {
			t.Fatal(err)
		}
		met[name]++
	}
	return met
}

// awaitEvent waits for an event of a change of the configuration or of the discovered backends, which a reload applies
// as well.
func (n *namesStage) awaitEvent(t *testing.T, service, backend, says string) {
	t.Helper()
	testenv.Eventually(t, e2e.WaitLimit, fmt.Sprintf("an event says of %s/%s: %s", service, backend, says), func() bool {
		met := false
		err := api.NewClient(n.socket).Events(t.Context(), "", false, func(e *events.Event, _ *events.Lost) error {
			about := e != nil && (e.Kind == events.KindConfiguration || e.Kind == events.KindDiscovery)
			met = met || about && e.Service == service && strings.HasPrefix(e.Backend, backend) &&
				strings.Contains(e.Message, says)
			return nil
		})
		return err == nil && met
	})
}

// TestNamesExchangeAddresses: three backends exchange their addresses in one change, of a file, of a list and of SRV
// records, while the first is drained and the third's address fails its checks. The drain and the counters stay with
// the names, connections and verdicts with the addresses, and an event reports it. A new backend that takes the address
// of the drained one is not drained.
func TestNamesExchangeAddresses(t *testing.T) {
	t.Parallel()
	n := newNamesStage(t)
	n.put(t, "alpha", "beta", "gamma")
	n.start(t)
	n.at(t, "at first", "alpha", "beta", "gamma")
	n.eventually(t, "all are up", allUp)
	servers := n.Servers
	flows := map[string]map[string]net.Conn{}
	for _, service := range namedServices {
		flows[service] = flowsTo(t, n.Lab, "tcp", netip.AddrPortFrom(netip.MustParseAddr("198.18.0.105"),
			namedPort(service)))
	}
	stay := func(when string) {
		t.Helper()
		for service, of := range flows {
			for _, server := range servers {
				if name, err := askName(of[server.Name]); err != nil || name != server.Name {
					t.Fatalf("%s, %s: a connection to %s is answered by %q, %v", when, service, server.Name, name, err)
				}
			}
		}
	}
	for _, of := range flows { // so that the counts of the names differ
		for range 200 {
			if _, err := askName(of[servers[0].Name]); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.doors[servers[2].Name].Close()
	n.eventually(t, "the third one's address fails its checks", func(status *ops.Status) bool {
		return everyBackend(status, func(_ ops.Service, b ops.Backend) bool {
			return (b.Address == servers[2].IPv4) == (b.State == lb.Unhealthy)
		})
	})
	before := n.at(t, "before", "alpha", "beta", "gamma")
	for _, service := range namedServices {
		n.operate(t, "drain", service+"/"+before[service]["alpha"].Name)
	}

	n.put(t, "gamma", "alpha", "beta")
	after := n.at(t, "in a circle", "gamma", "alpha", "beta")
	for _, service := range namedServices {
		for name, state := range map[string]lb.BackendState{"alpha": lb.Draining, "beta": lb.Unhealthy,
			"gamma": lb.Up} {
			if is := after[service][name]; is.State != state {
				t.Errorf("%s: %s, at its new address, is %s, want %s", service, name, is.State, state)
			}
			n.awaitEvent(t, service, name, "has another address")
		}
		n.awaitEvent(t, service, "alpha", "it stays drained")
		// The name that now has the drained one's address does not have its count.
		was, alpha, gamma := before[service]["alpha"].Packets, after[service]["alpha"].Packets,
			after[service]["gamma"].Packets
		if service == "resolved" {
			// Records are queried one by one: a name may have been absent in between, and then begins at 0.
			was, alpha = max(was, alpha), max(was, alpha)
		}
		if alpha < was || gamma >= was {
			t.Errorf("%s: alpha had %d packets and has %d; gamma has %d", service, was, alpha, gamma)
		}
		if met := n.newFlows(t, service); met[servers[0].Name] != 12 {
			t.Errorf("%s: new connections go to %v, want all to %s", service, met, servers[0].Name)
		}
	}
	stay("in a circle")

	n.put(t, "gamma", "delta", "beta")
	n.at(t, "in the drained one's place", "gamma", "delta", "beta")
	n.eventually(t, "the new one is not drained", func(status *ops.Status) bool {
		return everyBackend(status, func(_ ops.Service, b ops.Backend) bool {
			return b.Drain == nil && (b.State == lb.Up || b.Address == servers[2].IPv4 && b.State == lb.Unhealthy)
		})
	})
	for _, service := range namedServices {
		if met := n.newFlows(t, service); met[servers[0].Name] == 0 || met[servers[1].Name] == 0 ||
			met[servers[2].Name] != 0 {
			t.Errorf("%s: new connections go to %v", service, met)
		}
	}
	stay("in the drained one's place")
}

// operate runs an operation on a backend.
func (n *namesStage) operate(t *testing.T, what, target string) {
	t.Helper()
	var out cmdtest.SyncBuffer
	if err := jeoul(t, n.host, &out, "backend", what, target, "--socket", n.socket).Wait(); err != nil {
		t.Fatalf("jeoul backend %s %s: %v\n%s", what, target, err, out.String())
	}
}
