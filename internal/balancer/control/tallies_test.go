// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// count adds packets to the data plane's counters of the endpoint with this address, in any service.
func (w *world) count(address string, packets uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	backends := map[lb.BackendKey]lb.BackendCount{}
	for _, s := range w.state.Services {
		for _, b := range s.Backends {
			key := s.BackendKey(b)
			backends[key] = w.counters.Backends[key]
			if b.Address == netip.MustParseAddr(address) {
				backends[key] = backends[key].Plus(lb.BackendCount{Packets: packets, Connections: packets / 10})
			}
		}
	}
	w.counters.Backends = backends
}

// countedOf returns the counters of web's backends as the status shows them.
func countedOf(t *testing.T, c *Controller) string {
	t.Helper()
	var all []string
	for _, b := range statusOf(t, c).Services[0].Backends {
		all = append(all, fmt.Sprintf("%s=%d", b.Name, b.Packets))
	}
	return strings.Join(all, " ")
}

// TestCountersFollowNames: a name goes on with its own count at another address, over any number of changes and a
// restart, and a name that takes an address begins at 0.
func TestCountersFollowNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &noted{}
		w := newWorld(t)
		w.answer("192.0.2.1", "192.0.2.2")
		c := w.controller(web)
		c.opt.Memory = memory
		stop := w.run(c)
		expect := func(want string) {
			t.Helper()
			if got := countedOf(t, c); got != want {
				t.Errorf("counted %s, want %s", got, want)
			}
		}
		w.count("192.0.2.1", 1000)
		w.count("192.0.2.2", 50)
		expect("web01=1000 web02=50")
		other := swapped(web, "192.0.2.1}", "192.0.2.2}")
		w.mustReload(c, other)
		expect("web01=1000 web02=50")
		w.count("192.0.2.1", 7)
		expect("web01=1000 web02=57")
		must(t, c, "weight web/web01 9")
		w.mustReload(c, web)
		expect("web01=1000 web02=57")
		w.count("192.0.2.1", 1)
		expect("web01=1001 web02=57")
		stop()

		old := w
		w = newWorld(t)
		w.answer("192.0.2.1", "192.0.2.2")
		w.counters = old.counters
		c = w.follows(web, memory)
		stop = w.run(c)
		expect("web01=1001 web02=57")
		w.mustReload(c, strings.ReplaceAll(web, "web01", "new"))
		w.count("192.0.2.1", 3)
		expect("new=3 web02=57")
		// A backend that is taken out has no counters, and the data plane begins again when it is back.
		must(t, c, "disable web/new")
		w.count("192.0.2.2", 0) // forgets the other
		must(t, c, "enable web/new")
		w.count("192.0.2.1", 2000)
		expect("new=2000 web02=57")
		stop()
	})
}

// TestCountersUnread: where the counters cannot be read, a change is made all the same.
func TestCountersUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, "")
		w.mu.Lock()
		w.countersErr = errors.New("no map")
		w.mu.Unlock()
		w.mustReload(c, swapped(web, "192.0.2.1}", "192.0.2.2}"))
		w.expectApplied("apply web: web01=2 web02=1")
		w.expectLog("WARN", "go on with the counters of those that had it before: read the counters: no map")
		stop()
	})
}

// TestSlowStartOfAnotherName: a name that takes the address of another begins slowly, because it is another process; a
// change that leaves name and address does not.
func TestSlowStartOfAnotherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := strings.Replace(web, "port: 80\n", "port: 80\n    slow_start: 10s\n", 1)
		w, c, stop := running(t, file, "192.0.2.1", "192.0.2.2")
		time.Sleep(time.Minute)
		w.mustReload(c, strings.ReplaceAll(file, "web01", "new"))
		for name, slow := range map[string]bool{"new": true, "web02": false} {
			if b := stateOf(t, c, "web", name); (b.SlowStart != nil) != slow {
				t.Errorf("%s: slow start %+v", name, b.SlowStart)
			}
		}
		stop()
	})
}
