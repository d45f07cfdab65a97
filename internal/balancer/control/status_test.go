// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
)

func TestNearlyFull(t *testing.T) {
	for _, test := range []struct {
		proven, unproven uint64
		want             []string
	}{
		{0, 0, nil}, {89, 179, nil}, {90, 0, []string{"raise flows.limit"}}, {0, 180, []string{"SYN flood"}},
		{100, 200, []string{"100 flows are remembered of at most 100",
			"200 unproven flows are remembered of at most 200"}},
	} {
		got := nearlyFull(ops.Flows{Proven: test.proven, ProvenLimit: 100, Unproven: test.unproven, UnprovenLimit: 200})
		if len(got) != len(test.want) || !slices.EqualFunc(got, test.want, strings.Contains) {
			t.Errorf("%d and %d: %q, want %q", test.proven, test.unproven, got, test.want)
		}
	}
}

// TestCountersOfStatusAreFresh: a status is stamped when it is returned, so that its counters are read after whatever
// may take a while.
func TestCountersOfStatusAreFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.attachment, w.lossDelay = &lb.Attachment{Interface: "eth9", Hook: lb.HookXDP}, lossWait/2
		c := w.controller(web)
		stop := w.run(c)
		if _, err := c.Status(); err != nil {
			t.Fatal(err)
		}
		if age := time.Since(w.countersRead); age > 0 {
			t.Errorf("the counters of a status are %s old", age)
		}
		stop()
	})
}

// TestLossesOfXDP: the status warns of packets that may be lost and counts those that are, and the log has a line when
// there are ten times as many.
func TestLossesOfXDP(t *testing.T) {
	const warning = "eth9 is a veth"
	for _, test := range []struct {
		attachment lb.Attachment
		lost       uint64
		want       string
	}{
		{lb.Attachment{Interface: "eth9", Hook: lb.HookTC, Warning: ""}, 7, ""}, // another program's
		{lb.Attachment{Interface: "eth9", Hook: lb.HookXDP}, 0, ""},
		{lb.Attachment{Interface: "eth9", Hook: lb.HookXDP, Warning: warning}, 0, warning},
		{lb.Attachment{Interface: "eth9", Hook: lb.HookXDP, Warning: warning}, 7,
			"7 frames that XDP sent are lost, though they are counted as forwarded: " + warning},
		{lb.Attachment{Interface: "eth9", Hook: lb.HookXDP, Driver: "ixgbe"}, 7,
			"7 frames that XDP sent on eth9 are lost, though they are counted as forwarded: its driver (ixgbe) did not take them; see `ethtool -S eth9`, and set hook: tc if it goes on"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.attachment, w.xdpLost = &test.attachment, test.lost
			c := w.controller(web)
			stop := w.run(c)
			time.Sleep(lossInterval)
			synctest.Wait()
			status, err := c.Status()
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(status.Problems, test.want); got != (test.want != "") {
				t.Errorf("%+v, %d lost: problems %q, want %q", test.attachment, test.lost, status.Problems, test.want)
			}
			counted := test.lost
			if test.attachment.Hook != lb.HookXDP {
				counted = 0
			}
			if status.Interfaces[0].XDPLost != counted || status.Hook.Warning != test.attachment.Warning {
				t.Errorf("%+v", status.Interfaces[0])
			}
			if test.want != "" && !w.logged("WARN", test.want) {
				t.Errorf("not in the log: %q", test.want)
			}
			for _, more := range []uint64{9 * test.lost, 10 * test.lost} {
				w.lose(more)
				time.Sleep(lossInterval)
				synctest.Wait()
				logged := w.logged("WARN", fmt.Sprintf("%d frames that XDP sent", more))
				if want := test.want != "" && test.lost > 0 && more == 10*test.lost; logged != want {
					t.Errorf("%d lost after %d: logged %t, want %t", more, test.lost, logged, want)
				}
			}
			stop()
		})
	}
}

// severalModes has services whose status is made of different counters.
const severalModes = `
interface: eth9
fullnat: {addresses: [{address: 192.0.2.250}]}
services:
  - {name: web, vip: 192.0.2.100, port: 80, backends: [{name: web01, address: 192.0.2.1}, {name: web02, address: 192.0.2.2}]}
  - {name: full, vip: 192.0.2.101, port: 80, mode: fullnat, backends: [{name: web01, address: 192.0.2.1}]}
  - {name: shop, vip: 192.0.2.102, port: 80, mode: fullnat, backends: [{name: web01, address: 192.0.2.1}]}
  - {name: dns, vip: 192.0.2.100, port: 53, protocol: udp, backends: [{name: web02, address: 192.0.2.2}]}
`

// TestServices: services that are asked for by their names are as the status has them, in its order, each once, and
// those that there are not are left out.
func TestServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.controller(severalModes)
		stop := w.run(c)
		w.countEach(c)
		status, err := c.Status()
		if err != nil {
			t.Fatal(err)
		}
		for _, names := range [][]string{{}, {"web"}, {"full"}, {"dns", "web"}, {"shop", "nowhere", "web", "shop"},
			{"nowhere"}, {"dns", "shop", "full", "web"}} {
			want := []ops.Service{}
			if len(names) > 0 {
				want = status.ServicesNamed(names)
			}
			got, err := c.Services(names)
			diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }))
			if err != nil || diff != "" {
				t.Errorf("%q: %v (-status +services):\n%s", names, err, diff)
			}
		}
		stop()
	})
}

// TestServicesIn: the services that have a backend in some state are those whose status has one.
func TestServicesIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.routed("192.0.2.2", paths.Route{Fault: paths.NoRoute, Reason: "has no route", Advice: "add one"})
		w.found("192.0.2.2", 0)
		w.found("192.0.2.1", 1)
		c := w.controller(severalModes + `  - {name: drained, vip: 192.0.2.103, port: 80,
     backends: [{name: web01, address: 192.0.2.1, weight: 0}, {name: web02, address: 192.0.2.2}]}
`)
		stop := w.run(c)
		w.quiet()
		status, err := c.Status()
		if err != nil {
			t.Fatal(err)
		}
		several := 0
		for _, states := range [][]lb.BackendState{{}, {lb.NoRoute}, {lb.WeightZero}, {lb.Up}, {lb.Up, lb.NoRoute},
			{"no state"}} {
			var want []string
			for _, s := range status.Services {
				if len(states) > 0 && len(ops.BackendsOf([]ops.Service{s}, states...)) > 0 {
					want = append(want, s.Name)
				}
			}
			if got := c.ServicesIn(states); !slices.Equal(got, want) {
				t.Errorf("services with a backend in %q: %q, want %q", states, got, want)
			}
			if len(want) > 0 && len(want) < len(status.Services) {
				several++
			}
		}
		if several < 3 {
			t.Errorf("only %d of the states distinguish services: the test shows nothing", several)
		}
		stop()
	})
}

// countEach gives each backend and each service counters of its own.
func (w *world) countEach(c *Controller) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counters = lb.Counters{Backends: map[lb.BackendKey]lb.BackendCount{},
		Services: map[lb.ServiceKey]lb.ServiceCount{}}
	n := uint64(0)
	for _, s := range c.view.Config.Services {
		for _, b := range s.Backends {
			n++
			w.counters.Backends[s.BackendKey(b)] = lb.BackendCount{Packets: 100 * n, Bytes: 1000 * n,
				PortsHeld: uint32(n)}
		}
		w.counters.Services[s.Key()] = lb.ServiceCount{Active: uint32(10 + n), Flows: 20 + n}
	}
}

// TestKnownRoutesSuffice: a configuration whose backends are all reached by the routes that are known needs no lookup,
// and where one is not reached by these, the kernel decides.
func TestKnownRoutesSuffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.controller(web)
		stop := w.run(c)
		fresh, err := fakePaths{w}.Lookup(c.view.Watched)
		if err != nil {
			t.Fatal(err)
		}
		gone := netip.MustParseAddr("192.0.2.2")
		for _, test := range []struct {
			known paths.Fault
			real  paths.Fault
			asked int
		}{{paths.None, paths.None, 0}, {paths.NoRoute, paths.None, 1}, {paths.OwnAddress, paths.None, 1},
			{paths.NoRoute, paths.NoRoute, 1}} {
			w.known, w.asked = maps.Clone(fresh), 0
			w.routes[gone] = fresh[gone]
			for _, at := range []struct {
				routes map[netip.Addr]paths.Route
				fault  paths.Fault
			}{{w.known, test.known}, {w.routes, test.real}} {
				if at.fault != paths.None {
					at.routes[gone] = paths.Route{Fault: at.fault, Reason: "has no route"}
				}
			}
			_, mistakes, unreached, err := c.hostChecks.lookup(c.view.Layout, c.links)
			if err != nil || w.asked != test.asked || len(mistakes)+len(unreached) > 0 != (test.real != paths.None) {
				t.Errorf("%+v: looked up %d times, found %v and %v (%v)", test, w.asked, mistakes, unreached, err)
			}
		}
		stop()
	})
}
