// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
)

// finds is a Discovery whose sets a test gives.
type finds struct {
	mu      sync.Mutex
	sets    []lb.Discovered
	watched []string
	changes chan struct{}
}

func (f *finds) SetServices(services []lb.Service) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watched = nil
	for _, s := range services {
		f.watched = append(f.watched, s.Name)
	}
}

func (f *finds) Sets([]lb.Service) []lb.Discovered {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sets
}

func (f *finds) Changes() <-chan struct{} { return f.changes }

// find changes the set of web, which is backends named by their addresses.
func (f *finds) find(problem string, at ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set := lb.Discovered{Service: "web", Origin: lb.FromFile, Taken: time.Now(), Problem: problem}
	for _, addr := range at {
		name, addr, _ := strings.Cut(addr, "=")
		set.Backends = append(set.Backends, lb.Backend{Name: name, Address: netip.MustParseAddr(addr), Weight: 1})
	}
	f.sets = []lb.Discovered{set}
	signal(f.changes)
}

const discovered = `
interface: eth9
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    discover:
      file: {path: /etc/web.yaml}
    backends:
      - {name: own, address: 192.0.2.1}
`

// finding is a world with a controller of a file whose backends are found.
func finding(t *testing.T, file string, f *finds) (*world, *Controller, func() error) {
	w := newWorld(t)
	w.answer("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4")
	opt := w.controller(file).opt
	opt.Discovery = f
	c := New(opt, parse(t, file))
	return w, c, w.run(c)
}

// TestNotReady: a backend of which its origin says that it is not ready takes no new flow, checked or not.
func TestNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFinds()
		w, c, stop := finding(t, discovered, f)
		w.quiet()
		set := lb.Discovered{Service: "web", Origin: lb.FromFile, Taken: time.Now(), Backends: []lb.Backend{
			{Name: "a", Address: netip.MustParseAddr("192.0.2.2"), Weight: 1, NotReady: "is paused, as its engine says"},
			{Name: "b", Address: netip.MustParseAddr("192.0.2.3"), Weight: 1}}}
		f.mu.Lock()
		f.sets = []lb.Discovered{set}
		f.mu.Unlock()
		signal(f.changes)
		time.Sleep(discoverySettle)
		w.expectApplied("apply web: own=1 a=2! b=3")
		if b := stateOf(t, c, "web", "a"); b.State != lb.Unhealthy || b.Reason != "is paused, as its engine says" {
			t.Errorf("the backend is %s, for it %s", b.State, b.Reason)
		}
		must(t, c, "drain web/b")
		w.expectApplied("apply web: own=1 a=2! b=3~")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func newFinds() *finds { return &finds{changes: make(chan struct{}, 1)} }

// TestDiscovered: discovered backends come beside the configured ones, and go, and their operations go with them.
func TestDiscovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFinds()
		w, c, stop := finding(t, discovered, f)
		w.quiet()
		f.find("", "a=192.0.2.2", "b=192.0.2.3")
		time.Sleep(discoverySettle)
		w.expect("watch 192.0.2.1 192.0.2.2 192.0.2.3", "apply web: own=1 a=2 b=3",
			"watch 192.0.2.1 192.0.2.2 192.0.2.3")
		w.expectLog("service web: backends: 3; came: a, b")
		if _, err := c.Operate(t.Context(), ops.Order{Verb: ops.Drain, Service: "web", Backend: "b",
			By: "me"}); err != nil {
			t.Fatal(err)
		}
		w.expect("apply web: own=1 a=2 b=3~")
		status := statusOf(t, c)
		if d := status.Services[0].Discovered; len(d) != 1 || d[0].Backends != 2 || d[0].From != "file /etc/web.yaml" ||
			len(status.Problems) > 0 {
			t.Errorf("discovered %+v, problems %q", d, status.Problems)
		}
		if b := status.Services[0].Backends; b[0].Origin != "" || b[1].Origin != lb.FromFile {
			t.Errorf("backends %+v", b)
		}
		f.find("", "a=192.0.2.2")
		time.Sleep(discoveryInterval + discoverySettle)
		w.expect("watch 192.0.2.1 192.0.2.2 192.0.2.3", "apply web: own=1 a=2", "watch 192.0.2.1 192.0.2.2")
		w.expectLog("web/b is no longer found (file)")
		stop()
	})
}

// TestDiscoveredCoalesced: however often an origin says something else, changes are apart.
func TestDiscoveredCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFinds()
		w, _, stop := finding(t, discovered, f)
		w.quiet()
		start := time.Now()
		for i := range 1000 {
			f.find("", "a=192.0.2.2", []string{"b=192.0.2.3", "c=192.0.2.4"}[i%2])
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * discoveryInterval)
		applied := 0
		for _, did := range w.done() {
			if strings.HasPrefix(did, "apply ") {
				applied++
				if !strings.Contains(did, "own=1 a=2") {
					t.Errorf("a backend that stays was gone: %s", did)
				}
			}
		}
		if most := int(time.Since(start)/discoveryInterval) + 1; applied == 0 || applied > most {
			t.Errorf("%d changes in %s", applied, time.Since(start))
		}
		stop()
	})
}

// TestDiscoveredStart: backends found before are there from the start on, also for a service that has no backend of its
// own.
func TestDiscoveredStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFinds()
		f.find("has not answered since the start", "a=192.0.2.2")
		file := discovered[:strings.Index(discovered, "    backends:")]
		w, c, stop := finding(t, file, f)
		synctest.Wait()
		if did := strings.Join(w.done(), "\n"); !strings.Contains(did, "apply web: a=") {
			t.Errorf("at the start:\n%s", did)
		}
		expectProblems(t, c, "service web: file /etc/web.yaml: has not answered since the start; what it said at")
		w.expectLog("WARN", "service web: file /etc/web.yaml: has not answered since the start")
		w.quiet()
		f.find("")
		time.Sleep(2 * discoveryInterval)
		w.expect("watch 192.0.2.2", "apply web:", "watch ")
		expectProblems(t, c, "service web has no backend that can take packets")
		f.find("", "b=192.0.2.3")
		time.Sleep(2 * discoveryInterval)
		w.expect("watch 192.0.2.3", "apply web: b=3", "watch 192.0.2.3")
		stop()
	})
}

// TestDiscoveredUnsupported: an answer that cannot be a backend is left out, and its cause is logged once.
func TestDiscoveredUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFinds()
		w, c, stop := finding(t, discovered, f)
		w.quiet()
		w.routed("192.0.2.9", paths.Route{Fault: paths.OwnAddress, Reason: "is an address of this host",
			Advice: "use another"})
		for range 3 {
			f.find("", "a=192.0.2.2", "vip=192.0.2.100", "own=192.0.2.3", "mine=192.0.2.9")
			time.Sleep(2 * discoveryInterval)
		}
		status := statusOf(t, c)
		if n := len(status.Services[0].Backends); n != 2 {
			t.Errorf("%d backends", n)
		}
		for _, words := range []string{"vip is at 192.0.2.100, the VIP of web", "own has the name of another backend",
			"mine is an address of this host"} {
			if n := strings.Count(w.log.String(), words); n != 1 {
				t.Errorf("%q was logged %d times:\n%s", words, n, w.log.String())
			}
		}
		expectProblems(t, c, "the VIP of web, and 2 more")
		stop()
	})
}

// TestDiscoveredRefusedCount: more refused backends than a status lists are counted.
func TestDiscoveredRefusedCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFinds()
		_, c, stop := finding(t, discovered, f)
		var at []string
		for i := range 30 {
			at = append(at, fmt.Sprintf("vip%d=192.0.2.100", i))
		}
		f.find("", at...)
		time.Sleep(2 * discoveryInterval)
		if d := statusOf(t, c).Services[0].Discovered[0]; d.RefusedCount != 30 || len(d.Refused) != maxRefused+1 {
			t.Errorf("%d refused, %d lines", d.RefusedCount, len(d.Refused))
		}
		expectProblems(t, c, "the VIP of web, and 29 more")
		stop()
	})
}

// TestDiscoveredFails: a change that the data plane refuses leaves the previous backends, is shown, and is tried again.
func TestDiscoveredFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFinds()
		w, c, stop := finding(t, discovered, f)
		w.quiet()
		w.failApply(errors.New("no memory"))
		f.find("", "a=192.0.2.2")
		time.Sleep(discoverySettle)
		expectProblems(t, c, "apply the discovered backends (the previous ones stay): no memory")
		w.failApply(nil)
		time.Sleep(2 * retryFirst)
		if problems := statusOf(t, c).Problems; len(problems) > 0 {
			t.Errorf("problems %q", problems)
		}
		w.expectLog("recovered: the discovered backends are in force")
		stop()
	})
}

// TestDiscoveredReload: a reload takes discovered backends along, whether a change of them waits or not, and is
// answered.
func TestDiscoveredReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFinds()
		w, c, stop := finding(t, discovered, f)
		w.quiet()
		f.find("", "a=192.0.2.2", "silent=192.0.2.50")
		time.Sleep(discoverySettle) // it waits for the path
		w.mustReloadScheduled(c, strings.ReplaceAll(discovered, "192.0.2.100", "192.0.2.101"))
		status := statusOf(t, c)
		if s := status.Services[0]; s.VIP.String() != "192.0.2.101" || len(s.Backends) != 3 {
			t.Errorf("service %+v", s)
		}
		result := w.reload(c, strings.ReplaceAll(discovered, "192.0.2.1}", "192.0.2.51}"))
		f.find("", "b=192.0.2.3")
		time.Sleep(resolveBound + 2*discoveryInterval)
		if err := finished(t, result); err != nil {
			t.Fatal(err)
		}
		if s := statusOf(t, c).Services[0]; len(s.Backends) != 2 || s.Backends[1].Name != "b" {
			t.Errorf("service %+v", s)
		}
		w.mustReloadScheduled(c, strings.Replace(discovered, "    discover:\n      file: {path: /etc/web.yaml}\n", "", 1))
		if f.watched[0] != "web" {
			t.Errorf("watched %q", f.watched)
		}
		stop()
	})
}

// TestDiscoveredRefusedReload: a change of discovered backends that waits for a path is not lost with the reloads that
// come meanwhile and are refused.
func TestDiscoveredRefusedReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFinds()
		w, c, stop := finding(t, discovered, f)
		w.quiet()
		f.find("", "a=192.0.2.2", "silent=192.0.2.50")
		time.Sleep(discoverySettle) // it waits for the path
		given, giveUp := context.WithCancel(t.Context())
		abandoned := make(chan error, 1)
		go func() {
			abandoned <- c.Reload(given, func() (*config.Config, error) {
				return parse(t, strings.ReplaceAll(discovered, "192.0.2.1}", "192.0.2.51}")), nil
			})
		}()
		synctest.Wait()
		giveUp()
		if err := finished(t, abandoned); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		result := w.reload(c, strings.ReplaceAll(discovered, "192.0.2.100", "192.0.2.101"))
		w.failApply(errors.New("no memory"))
		time.Sleep(resolveBound)
		if err := finished(t, result); err == nil {
			t.Fatal("the reload was not refused")
		}
		w.failApply(nil)
		time.Sleep(time.Minute)
		if s := statusOf(t, c).Services[0]; s.VIP.String() != "192.0.2.100" || len(s.Backends) != 3 {
			t.Errorf("service %+v, expected the VIP 192.0.2.100 and 3 backends", s)
		}
		stop()
	})
}

// mustReloadScheduled reloads a file that must not be refused, and may have to wait for paths.
func (w *world) mustReloadScheduled(c *Controller, file string) {
	w.t.Helper()
	result := w.reload(c, file)
	time.Sleep(resolveBound)
	if err := finished(w.t, result); err != nil {
		w.t.Fatal(err)
	}
}
