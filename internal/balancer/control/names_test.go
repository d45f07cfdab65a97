// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// swapped is a text in which two words have taken each other's places.
func swapped(text, a, b string) string { return strings.NewReplacer(a, b, b, a).Replace(text) }

// applied returns the last state that the data plane got, or fails the test where it got none since.
func (w *world) applied() string {
	w.t.Helper()
	last := ""
	for _, did := range w.done() {
		if strings.HasPrefix(did, "apply ") {
			last = did
		}
	}
	if last == "" {
		w.t.Error("the data plane got no state")
	}
	return last
}

// expectApplied waits until nothing more happens now, and compares the last state that the data plane got.
func (w *world) expectApplied(want string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.applied(); got != want {
		w.t.Errorf("%s, want %s", got, want)
	}
}

// TestReaddressed: changes by operations stay with the name, and an event says that it has another address.
func TestReaddressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, "")
		must(t, c, "drain web/web01", "weight web/web02 9")
		since := time.Now().Format(time.DateTime)
		w.done()
		w.mustReload(c, swapped(web, "192.0.2.1}", "192.0.2.2}"))
		w.expectApplied("apply web: web01=2~ web02=1*9")
		w.expectLog("INFO", "web/web01 has another address: 192.0.2.1 → 192.0.2.2; it stays drained by kim since "+
			since)
		w.expectLog("INFO", "web/web02 has another address: 192.0.2.2 → 192.0.2.1; it stays of weight 9 by kim since "+
			since)
		must(t, c, "undo", "undo")
		w.expectApplied("apply web: web01=2 web02=1")
		stop()
	})
}

// TestAddressOfDrained: a backend that takes the address of a drained one is not drained, in the configuration and
// among discovered backends, and the log says whose it is.
func TestAddressOfDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, "")
		must(t, c, "drain web/web01")
		w.done()
		w.mustReload(c, strings.ReplaceAll(web, "web01", "new"))
		w.expectApplied("apply web: new=1 web02=2")
		w.expectLog("WARN", "web/web01 is no longer in the configuration, and the operations on it end; "+
			"its address 192.0.2.1 is web/new's now, which no operation on web/web01 concerns")
		stop()
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFinds()
		w, c, stop := finding(t, discovered, f)
		w.discover(f, "a=192.0.2.2", "b=192.0.2.3")
		must(t, c, "drain web/a", "disable web/b")
		w.done()
		w.discover(f, "new=192.0.2.2", "other=192.0.2.3")
		w.expectApplied("apply web: own=1 new=2 other=3")
		w.expectLog("WARN", "web/a is no longer found (file), and stays drained by kim since "+
			time.Now().Add(-discoverySpan).Format(time.DateTime)+" if it is found again within 24h0m0s; "+
			"its address 192.0.2.2 is web/new's now, which no operation on web/a concerns")
		stop()
	})
}

// discoverySpan is how long a change of discovered backends takes at most.
const discoverySpan = 2 * discoveryInterval

// discover has web's backends be these, and waits until they are in force.
func (w *world) discover(f *finds, at ...string) {
	f.find("", at...)
	time.Sleep(discoverySpan)
	synctest.Wait()
}

// TestDiscoveredSwap: backends that are discovered exchange their addresses in one change, or one after the other with
// a gap of any length: changes by operations stay with the names.
func TestDiscoveredSwap(t *testing.T) {
	a, b := "a=192.0.2.2", "b=192.0.2.3"
	for name, steps := range map[string][][]string{
		"in one change":     {{"a=192.0.2.3", "b=192.0.2.2"}},
		"with a gap":        {{}, {"a=192.0.2.3", "b=192.0.2.2"}},
		"one by one":        {{b}, {}, {"b=192.0.2.2"}, {"a=192.0.2.3", "b=192.0.2.2"}},
		"by a third":        {{"a=192.0.2.4", b}, {"a=192.0.2.4", "b=192.0.2.2"}, {"a=192.0.2.3", "b=192.0.2.2"}},
		"the other's first": {{a}, {"a=192.0.2.3"}, {"a=192.0.2.3", "b=192.0.2.2"}},
	} {
		for _, gap := range []time.Duration{0, 6 * time.Second, view.AbsentFor - time.Minute} {
			t.Run(fmt.Sprint(name, " ", gap), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFinds()
					w, c, stop := finding(t, discovered, f)
					w.discover(f, a, b)
					must(t, c, "drain web/a", "weight web/b 7")
					for _, found := range steps {
						w.done()
						time.Sleep(gap / time.Duration(len(steps)))
						w.discover(f, found...)
					}
					w.expectApplied("apply web: own=1 a=3~ b=2*7")
					wantOperations(t, c, "web/a drain=true by kim", "web/b weight=7 by kim",
						"undo weight web/b", "undo drain web/a")
					w.expectLog("web/b has another address: 192.0.2.3 → 192.0.2.2; it stays of weight 7 by kim since ")
					must(t, c, "undo", "undo")
					w.expectApplied("apply web: own=1 a=3 b=2")
					stop()
				})
			})
		}
	}
}

// TestAbsent: an operation on an absent backend is listed, can be changed and undone meanwhile, and is logged when the
// backend is found again.
func TestAbsent(t *testing.T) {
	for do, test := range map[string]struct {
		want string
		in   []string
	}{
		"":                {"apply web: own=1 a=2~*5", []string{"web/a drain=true by kim weight=5 by kim"}},
		"enable web/a":    {"apply web: own=1 a=2*5", []string{"web/a weight=5 by kim"}},
		"disable web/a":   {"apply web: own=1", []string{"web/a drain=true by kim out weight=5 by kim"}},
		"weight web/a 1":  {"apply web: own=1 a=2~", []string{"web/a drain=true by kim"}},
		"undo":            {"apply web: own=1 a=2*5", []string{"web/a weight=5 by kim"}},
		"drain web/a 10s": {"apply web: own=1", []string{"web/a drain=true by kim deadline out weight=5 by kim"}},
	} {
		t.Run(do, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFinds()
				w, c, stop := finding(t, discovered, f)
				w.discover(f, "a=192.0.2.2")
				must(t, c, "weight web/a 5", "drain web/a")
				w.discover(f)
				all, err := c.Operations()
				if err != nil || len(all.InForce) != 1 || all.InForce[0].Absent.IsZero() ||
					all.InForce[0].Address.String() != "192.0.2.2" {
					t.Errorf("operations %+v, %v", all, err)
				}
				if do != "" {
					must(t, c, do)
				}
				time.Sleep(time.Minute)
				w.done()
				w.discover(f, "a=192.0.2.2")
				w.expectApplied(test.want)
				var in []string
				for _, line := range operations(t, c) {
					if !strings.HasPrefix(line, "undo ") {
						in = append(in, line)
					}
				}
				if diff := cmp.Diff(test.in, in); diff != "" {
					t.Errorf("in force (-want +got):\n%s", diff)
				}
				w.expectLog("INFO", "web/a is found again (file), and is ")
				stop()
			})
		})
	}
}

// TestUndoOfAbsent: an operation that ended another is undone while the backend is absent.
func TestUndoOfAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFinds()
		w, c, stop := finding(t, discovered, f)
		w.discover(f, "a=192.0.2.2")
		must(t, c, "drain web/a", "enable web/a")
		w.discover(f)
		must(t, c, "undo")
		w.done()
		w.discover(f, "a=192.0.2.3")
		w.expectApplied("apply web: own=1 a=3~")
		stop()
	})
}

// TestAbsentForLong: an operation on a backend that is absent for too long ends with a warning, and cannot be undone
// any more.
func TestAbsentForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFinds()
		w, c, stop := finding(t, discovered, f)
		w.discover(f, "a=192.0.2.2", "b=192.0.2.3")
		must(t, c, "drain web/a", "drain web/b")
		w.discover(f, "b=192.0.2.3")
		time.Sleep(view.AbsentFor)
		synctest.Wait()
		w.expectLog("WARN", "web/a has been absent for 24h0m0s, and the operations on it end")
		wantOperations(t, c, "web/b drain=true by kim", "undo drain web/b", "undo drain web/a lost")
		w.discover(f, "a=192.0.2.3", "b=192.0.2.2")
		w.expectApplied("apply web: own=1 a=3 b=2~")
		if w.logged("web/a has another address") {
			t.Error("it is remembered where a was")
		}
		stop()
	})
}

// TestTakenOut: whoever takes a backend, or the place where it is found, out of the configuration ends the operations
// on it.
func TestTakenOut(t *testing.T) {
	for name, file := range map[string]string{
		"discover":    strings.Replace(discovered, "    discover:\n      file: {path: /etc/web.yaml}\n", "", 1),
		"the service": strings.ReplaceAll(discovered, "name: web", "name: other"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFinds()
				w, c, stop := finding(t, discovered, f)
				w.discover(f, "a=192.0.2.2")
				must(t, c, "drain web/a")
				w.mustReload(c, file)
				w.expectLog("WARN", "web/a is no longer found (file), and the operations on it end")
				wantOperations(t, c, "undo drain web/a lost")
				stop()
			})
		})
	}
}

const ports = `
interface: eth9
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    mode: nat
    backends:
      - {name: a, address: 192.0.2.1, port: 8080}
      - {name: b, address: 192.0.2.1, port: 8081}
      - {name: c, address: 192.0.2.2}
`

// TestSwappedPorts: backends of one host are told apart by their ports, which are a part of the address.
func TestSwappedPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := running(t, ports, "192.0.2.1", "192.0.2.2")
		must(t, c, "drain web/a", "weight web/b 3")
		w.done()
		w.mustReload(c, swapped(ports, "8080", "8081"))
		states := map[string]string{"a": "8081 drained=true 1", "b": "8080 drained=false 3", "c": "80 drained=false 1"}
		for name, want := range states {
			b := stateOf(t, c, "web", name)
			if got := fmt.Sprintf("%d drained=%t %d", b.Port, b.Drain != nil, b.Weight); got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
		w.expectLog("web/a has another address: 192.0.2.1:8080 → 192.0.2.1:8081; it stays drained by kim since ")
		w.mustReload(c, strings.ReplaceAll(swapped(ports, "8080", "8081"), "port: 80\n", "port: 81\n"))
		if w.logged("web/c has another address") {
			t.Error("a service's port is no other address of its backends")
		}
		stop()
	})
}

// TestForcedFollowsName: a backend that is enabled by force is so at another address, and no other is.
func TestForcedFollowsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer("192.0.2.1", "192.0.2.2")
		c, asked := watched(w, checkedWeb)
		stop := w.run(c)
		asked.say(t, c, failing("answers 500"), "web01")
		time.Sleep(settleDelay)
		enable := ops.Order{Verb: ops.Enable, Service: "web", Backend: "web01", Force: true, By: "kim"}
		if _, err := c.Operate(t.Context(), enable); err != nil {
			t.Fatal(err)
		}
		w.mustReload(c, swapped(checkedWeb, "192.0.2.1}", "192.0.2.2}"))
		// The verdict is on the host that answers at the address.
		for name, want := range map[string]lb.BackendState{"web01": lb.Up, "web02": lb.Unhealthy} {
			if b := stateOf(t, c, "web", name); b.State != want || (b.Forced != nil) != (name == "web01") {
				t.Errorf("%s: %+v", name, b)
			}
		}
		stop()
	})
}
