// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// reindexed gives eth9's routes the index that it has now.
func (w *world) reindexed(index int) {
	w.routed("192.0.2.1", paths.Route{Interface: "eth9", Index: index, MTU: 1500})
	w.routed("192.0.2.2", paths.Route{Interface: "eth9", Index: index, MTU: 1500})
	w.found("192.0.2.1", 1)
	w.found("192.0.2.2", 2)
}

// TestInterfaceIsMadeAnew deletes the interface, also unnoticed, and makes another one of its name: the balancer
// waits for it, says so, and then has settings, addresses, paths and the data plane on the new one.
func TestInterfaceIsMadeAnew(t *testing.T) {
	for _, noticed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			c := w.controller(mode(lb.NAT))
			stop := w.run(c)
			w.reindexed(9)
			time.Sleep(time.Minute)
			w.quiet()
			was := w.links[0]
			gone := func() bool {
				status, err := c.Status()
				return err == nil && slices.ContainsFunc(status.Problems, func(p string) bool {
					return strings.HasPrefix(p, "interface eth9 was deleted: ")
				})
			}
			if noticed {
				w.changeLink(func() { w.links[0] = iface.State{Name: "eth9", Index: 9, Gone: true} })
				time.Sleep(time.Second)
				synctest.Wait()
				if !gone() {
					t.Error("status does not say that the interface is gone")
				}
				w.expectLog("interface eth9 was deleted: no packets by it until there is one of that name again")
				if got := w.done(); slices.ContainsFunc(got, func(line string) bool {
					return strings.Contains(line, "forward IPv4 on eth9")
				}) {
					t.Errorf("settings of an interface that is gone: %q", got)
				}
			}
			anew := was
			anew.Index, anew.Addresses = 19, nil
			w.changeLink(func() { w.links = []iface.State{anew} })
			w.reindexed(19)
			time.Sleep(time.Second)
			synctest.Wait()
			if gone() {
				t.Error("status says that the interface is gone still")
			}
			w.expectLog("interface eth9 is back: packets are taken there again")
			done := w.done()
			for _, want := range []string{"forward IPv4 on eth9", "use eth9", "apply web: web01=1 web02=2",
				"add 192.0.2.100", "announce 192.0.2.100 on eth9"} {
				if !slices.Contains(done, want) {
					t.Errorf("not done: %s, but %q", want, done)
				}
			}
			if slices.ContainsFunc(done, func(line string) bool { return strings.HasPrefix(line, "remove ") }) {
				t.Errorf("addresses were removed: %q", done)
			}
			// And all goes on as before.
			w.found("192.0.2.1", 0)
			time.Sleep(time.Second)
			synctest.Wait()
			if done := w.done(); !slices.Contains(done, "apply web: web01=- web02=2") {
				t.Errorf("a backend that is lost is not taken out: %q", done)
			}
			stop()
		})
	}
}

// TestOneOfSeveralIsGone: traffic by the others goes on, and can be changed; a step that fails when the interface is
// back is tried again.
func TestOneOfSeveralIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, _ := ported(t, lb.NAT)
		stop := w.run(c)
		if err := finished(t, w.reload(c, withInterfaces(mode(lb.NAT), "eth9, eth8"))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.quiet()
		was := slices.Clone(w.links)
		w.changeLink(func() { w.links[1] = iface.State{Name: "eth8", Index: 8, Gone: true} })
		w.found("192.0.2.2", 0)
		time.Sleep(time.Second)
		synctest.Wait()
		done := w.done()
		for _, want := range []string{"forward IPv4 on eth9", "apply web: web01=1 web02=-"} {
			if !slices.Contains(done, want) {
				t.Errorf("not done: %s, but %q", want, done)
			}
		}
		w.changeLink(func() { w.links[1] = was[1]; w.links[1].Index = 18 })
		w.failApply(errors.New("not yet"))
		time.Sleep(time.Second)
		w.failApply(nil)
		w.routed("192.0.2.2", paths.Route{Interface: "eth8", Index: 18, MTU: 1500})
		w.found("192.0.2.2", 2)
		time.Sleep(time.Minute)
		synctest.Wait()
		done = w.done()
		for _, want := range []string{"forward IPv4 on eth9 eth8", "apply web: web01=1 web02=2"} {
			if !slices.Contains(done, want) {
				t.Errorf("not done: %s, but %q", want, done)
			}
		}
		stop()
	})
}
