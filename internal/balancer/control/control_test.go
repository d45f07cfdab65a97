// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/vips"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// web is a service of two backends.
const web = `
interface: eth9
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    backends:
      - {name: web01, address: 192.0.2.1}
      - {name: web02, address: 192.0.2.2}
`

// dns is a second service.
const dns = `
  - name: dns
    vip: 2001:db8::53
    port: 53
    protocol: udp
    backends:
      - {name: dns01, address: 2001:db8::1}
`

// started is the list of steps by which a balancer starts with the configuration web.
var started = []string{
	"watch 192.0.2.1 192.0.2.2",
	"apply web: web01=- web02=-",
	"add 192.0.2.100",
	"announce 192.0.2.100 on eth9",
}

func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run(w.controller(web))
		w.expect(started...)
		time.Sleep(time.Minute)
		w.expect(slices.Repeat([]string{"announce 192.0.2.100 on eth9"}, len(vips.AnnounceAt)-1)...)
		w.expectLog("balancing on eth9 in tc")
		w.expectLog("WARN", "backend web02 (192.0.2.2) of web was not asked yet: no packets until that changes")
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		w.expect() // undoing is for those who own the parts
	})
}

func TestStartRefused(t *testing.T) {
	tests := map[string]struct {
		change  func(*world)
		file    string
		want    string
		wantDid []string
	}{
		"own address": {func(w *world) {
			w.routed("192.0.2.254", paths.Route{Fault: paths.OwnAddress, Reason: "is an address of this host",
				Advice: "a backend is another host"})
		}, strings.ReplaceAll(web, "192.0.2.2}", "192.0.2.254}"),
			"f:9: services[0].backends[1].address: 192.0.2.254 is an address of this host; a backend is another host",
			nil},
		"broadcast": {func(w *world) {
			w.routed("192.0.2.255", paths.Route{Fault: paths.NotUnicast, Reason: "is no single host",
				Advice: "use the backend's own address"})
		}, strings.ReplaceAll(web, "192.0.2.2}", "192.0.2.255}"),
			"f:9: services[0].backends[1].address: 192.0.2.255 is no single host; use the backend's own address", nil},
		"no interface": {func(w *world) { w.linkErr = iface.ErrGone }, web, "the interface was deleted", nil},
		"no rights": {func(w *world) { w.applyErr = errors.New("no rights") }, web, "no rights",
			[]string{started[0], "fail to apply web: web01=- web02=-"}},
		"no watch": {func(w *world) { w.watchErr = errors.New("no rights") }, web,
			"no rights", []string{started[0]}},
		"second VIP fails": {func(w *world) {
			w.addErr[netip.MustParseAddr("2001:db8::53")] = errors.New("IPv6 is off")
		}, web + dns, "IPv6 is off",
			[]string{"watch 192.0.2.1 192.0.2.2 2001:db8::1", "apply web: web01=- web02=- dns: dns01=-",
				"add 192.0.2.100", "fail to add 2001:db8::53"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if test.change != nil {
				test.change(w)
			}
			err := w.controller(test.file).Start()
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantDid, w.done()); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPathsKnownAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.found("192.0.2.1", 1)
		stop := w.run(w.controller(web))
		w.expect(started[0], "apply web: web01=1 web02=-", started[2], started[3])
		w.expectLog("backend web01 (192.0.2.1) of web is at 02:00:00:00:00:01")
		time.Sleep(settleDelay)
		w.expect()
		stop()
	})
}

func TestPathsCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, stop := running(t, web)
		w.found("192.0.2.1", 1)
		w.found("192.0.2.2", 2)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=2") // both at once
		w.expectLog("backend web01 (192.0.2.1) of web is at 02:00:00:00:00:01")

		w.found("192.0.2.2", 2)
		time.Sleep(settleDelay)
		w.expect() // nothing new

		w.found("192.0.2.2", 0)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=-") // the other goes on
		w.expectLog("WARN", "backend web02 (192.0.2.2) of web does not answer: no packets until that changes")

		w.found("192.0.2.1", 7)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=7 web02=-")
		w.expectLog("has moved from 02:00:00:00:00:01 to 02:00:00:00:00:07")
		stop()
	})
}

// TestFlapping: a backend that changes all the time does not delay changes of another one.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, stop := running(t, web)
		w.found("192.0.2.1", 1)
		for last := range byte(10) {
			w.found("192.0.2.2", last+1)
			time.Sleep(settleDelay / 2)
		}
		synctest.Wait()
		if n := len(w.done()); n < 3 || n > 6 {
			t.Errorf("%d states applied in %v, want one in each %v", n, 5*settleDelay, settleDelay)
		}
		stop()
	})
}

func TestApplyIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := running(t, web)
		w.failApply(errors.New("no memory"))
		w.found("192.0.2.1", 1)
		time.Sleep(settleDelay)
		w.expect("fail to apply web: web01=1 web02=-")
		w.expectLog("ERROR", "no memory")
		if got := problems(t, c); len(got) != 2 || got[0] != "no memory" {
			t.Errorf("problems %q", got)
		}
		time.Sleep(retryFirst + settleDelay)
		w.expect("fail to apply web: web01=1 web02=-")
		time.Sleep(2*retryFirst + settleDelay)
		w.expect("fail to apply web: web01=1 web02=-")
		if n := strings.Count(w.log.String(), "no memory"); n != 1 {
			t.Errorf("the same failure was logged %d times, want once", n)
		}
		w.failApply(nil)
		time.Sleep(4*retryFirst + settleDelay)
		w.expect("apply web: web01=1 web02=-")
		w.expectLog("recovered: the changes that had failed are done")
		expectProblems(t, c)
		stop()
	})
}

func TestLinkDownAndUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := running(t, web, "192.0.2.1")
		w.changeLink(func() {
			w.links[0].Up = false
			w.drop(netip.MustParseAddr("192.0.2.100"))
		})
		time.Sleep(settleDelay)
		w.expect() // nothing can be done
		w.expectLog("WARN", "interface eth9 is down")
		expectProblems(t, c, "eth9 is down")
		w.changeLink(func() { w.links[0].Up = true })
		time.Sleep(settleDelay)
		w.expect("add 192.0.2.100", "announce 192.0.2.100 on eth9")
		w.expectLog("interface eth9 is up")
		stop()
	})
}

// planned is a data plane that reports the memory it has taken.
type planned struct {
	*world
	plan *lb.MemoryPlan
}

func (p planned) Memory() lb.MemoryPlan { return *p.plan }

// TestMemoryIsSaid: at the start, in the status, and again where it has changed.
func TestMemoryIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		plan := &lb.MemoryPlan{ProvenLimit: 1000, UnprovenLimit: 500, Proven: 64000, Unproven: 32000,
			Configuration: 1 << 20}
		c := w.controller(web)
		c.opt.DataPlane = planned{w, plan}
		stop := w.run(c)
		w.quiet()
		w.expectLog("INFO", plan.String())
		status, err := c.Status()
		if err != nil {
			t.Fatal(err)
		}
		want := &ops.Memory{Total: 96000 + 1<<20, Proven: 64000, Unproven: 32000, Configuration: 1 << 20}
		if diff := cmp.Diff(want, status.Memory); diff != "" {
			t.Errorf("memory (-want +got):\n%s", diff)
		}
		for _, bytes := range []uint64{1 << 20, 1 << 22} {
			plan.Configuration = bytes
			w.mustReload(c, web)
		}
		if n := strings.Count(w.log.String(), "of kernel memory"); n != 2 {
			t.Errorf("the memory was logged %d times, want at the start and when it changed:\n%s", n, w.log.String())
		}
		stop()
	})
}

func TestStartWithLinkDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.links[0].Up = false
		stop := w.run(w.controller(web))
		time.Sleep(time.Minute)
		w.expect(started[:3]...) // and no announcement
		w.expectLog("WARN", "interface eth9 is down")
		stop()
	})
}

// TestVIPTakenAway: another program flushes the interface's addresses.
func TestVIPTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, stop := running(t, web)
		w.changeLink(func() { w.drop(netip.MustParseAddr("192.0.2.100")) })
		time.Sleep(settleDelay)
		w.expect("add 192.0.2.100", "announce 192.0.2.100 on eth9")
		stop()
	})
}

func TestLinkMACChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, stop := running(t, web, "192.0.2.1")
		w.failApply(errors.New("busy"))
		w.changeLink(func() { w.links[0].MAC = net.HardwareAddr{2, 0, 0, 0, 0, 0xfe} })
		time.Sleep(settleDelay)
		w.expect("fail to apply web: web01=1 web02=-", "announce 192.0.2.100 on eth9")
		w.failApply(nil)
		time.Sleep(retryFirst/2 + settleDelay)
		w.done()
		time.Sleep(retryFirst / 2)
		synctest.Wait()
		if !strings.Contains(strings.Join(w.done(), "\n"), "apply web: web01=1 web02=-") {
			t.Error("the data plane was not told again")
		}
		stop()
	})
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		file := web + "      - {name: web03, address: 192.0.2.3, weight: 0}\n" + dns
		vip, backend, since := netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("192.0.2.1"), time.Now()
		w.counters = lb.Counters{
			Outcomes: []lb.OutcomeCount{{Name: "forwarded", Help: "sent on", Packets: 9},
				{Name: "dropped", Help: "lost"}},
			Backends: map[lb.BackendKey]lb.BackendCount{
				{Service: lb.ServiceKey{VIP: vip, Port: 80, Protocol: lb.TCP}, Address: backend, Port: 80}: {Packets: 7,
					Bytes: 420, Connections: 2, Active: 3, Flows: 4},
			},
			Flows: lb.FlowCounts{Proven: 1, ProvenLimit: 10, Unproven: 2, UnprovenLimit: 20, Bytes: 1920},
			Services: map[lb.ServiceKey]lb.ServiceCount{{VIP: vip, Port: 80, Protocol: lb.TCP}: {Active: 5, Flows: 6,
				Transition: &lb.TransitionProgress{Since: since, Until: since.Add(time.Minute), MovedSlots: 7,
					Slots: 1021, Base: true}}},
		}
		w.found("192.0.2.1", 1)
		w.found("192.0.2.2", 0)
		c := w.controller(file)
		stop := w.run(c)
		synctest.Wait()
		got, err := c.Status()
		if err != nil {
			t.Fatal(err)
		}
		hook := ops.Hook{Name: lb.HookTC, Driver: "veth", Reason: "the configuration asks for it"}
		want := ops.Status{
			Version: "v0", Started: got.Started, PID: got.PID, Config: "f", Interface: "eth9", Generation: 1,
			Hook: hook, Interfaces: []ops.Interface{{Name: "eth9", Up: true, MAC: "02:00:00:00:00:ff", Hook: hook}},
			Problems: []string{"service dns has no backend that can take packets: all to it are dropped"},
			Services: []ops.Service{
				{Name: "web", Owner: "file", VIP: vip, Port: 80, Protocol: lb.TCP, Mode: lb.L2DSR, Scheduler: lb.Maglev,
					Hash: lb.HashFlow, TableSize: 1021,
					Active: 5, Flows: 6, Serving: ops.ServingHealthy,
					Transition: &ops.Transition{Since: since, Until: since.Add(time.Minute), MovedSlots: 7, Slots: 1021,
						Base: true}, Backends: []ops.Backend{
						{Name: "web01", Address: backend, Port: 80, Weight: 1, State: lb.Up, Neighbour: "reachable",
							Interface: "eth9", NextHop: backend, MTU: 1500,
							MAC: "02:00:00:00:00:01", Packets: 7, Bytes: 420, Connections: 2, Active: 3, Flows: 4},
						{Name: "web02", Address: netip.MustParseAddr("192.0.2.2"), Port: 80, Weight: 1, State: lb.NoMAC,
							Interface: "eth9", NextHop: netip.MustParseAddr("192.0.2.2"), MTU: 1500,
							Neighbour: "failed", Reason: "does not answer", Since: since},
						{Name: "web03", Address: netip.MustParseAddr("192.0.2.3"), Port: 80, State: lb.WeightZero,
							Neighbour: "unknown", Reason: "was not asked yet", Since: since},
					}},
				{Name: "dns", Owner: "file", VIP: netip.MustParseAddr("2001:db8::53"), Port: 53, Protocol: lb.UDP,
					Mode: lb.L2DSR, Scheduler: lb.Maglev, Hash: lb.HashFlow, TableSize: 1021,
					Serving: ops.ServingHealthy, Backends: []ops.Backend{
						{Name: "dns01", Address: netip.MustParseAddr("2001:db8::1"), Port: 53, Weight: 1,
							State:     lb.NoMAC,
							Neighbour: "unknown", Reason: "was not asked yet", Since: since},
					}},
			},
			Outcomes: []ops.Outcome{{Name: "forwarded", Packets: 9, Help: "sent on"},
				{Name: "dropped", Help: "lost"}},
			Flows:      &ops.Flows{Proven: 1, ProvenLimit: 10, Unproven: 2, UnprovenLimit: 20, Bytes: 1920},
			Operations: ops.Operations{InForce: []ops.Overlay{}, History: []ops.Operation{}},
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		stop()
	})
}

// TestManyVIPs: of thousands of addresses some are named, and the others counted.
func TestManyVIPs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var file strings.Builder
		file.WriteString("interface: eth9\nservices:\n")
		for i := range loglines.MaxLines + 30 {
			fmt.Fprintf(&file,
				"  - {name: s%d, vip: 192.0.3.%d, port: 80, backends: [{name: web01, address: 192.0.2.1}]}\n", i, i)
		}
		stop := w.run(w.controller(file.String()))
		w.expectLog("192.0.3.99: absent → present")
		w.expectLog("30 more changes to the host's network settings")
		if w.logged("192.0.3.100: absent") {
			t.Error("one more than the most is named")
		}
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
