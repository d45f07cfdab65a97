// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/durable"
)

const natWeb = `
interface: eth9
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    mode: nat
    outliers: {failures: 50%, pause: 10s}
    backends:
      - {name: web01, address: 192.0.2.1}
      - {name: web02, address: 192.0.2.2}
      - {name: web03, address: 192.0.2.3}
`

// clients send ten connections a second to each backend of a service that takes new flows, of which
// those of the dead are refused.
func (w *world) clients(seconds int, dead ...string) {
	for range seconds {
		time.Sleep(time.Second)
		w.mu.Lock()
		s := w.state.Services[0]
		backends := map[lb.BackendKey]lb.BackendCount{}
		for i, b := range s.Backends {
			count := w.counters.Backends[s.BackendKey(b)]
			if s.TakesFlows(i) {
				count.Connections += 10
				if slices.Contains(dead, b.Name) {
					count.Refused += 10
				} else {
					count.Answered += 10
				}
			}
			backends[s.BackendKey(b)] = count
		}
		w.counters.Backends = backends
		w.mu.Unlock()
	}
	synctest.Wait()
}

// newEjecting is a controller that ejects backends by their answers.
func newEjecting(t *testing.T, file string) (w *world, c *Controller, asked *checks, kept *noted, stop func() error) {
	t.Helper()
	kept = &noted{}
	w, c, asked, stop = newEjectingInto(t, file, kept, nil)
	return w, c, asked, kept, stop
}

// newEjectingInto is newEjecting with a place where ejections are kept, and files that report the content that they
// cannot write.
func newEjectingInto(t *testing.T, file string, kept Memory, files *durable.Files) (
	w *world, c *Controller, asked *checks, stop func() error) {
	t.Helper()
	w = newWorld(t)
	c, asked = watched(w, file)
	opt := c.opt
	opt.Ejections, opt.Files = kept, files
	c = New(opt, c.view.Config)
	stop = w.run(c)
	w.quiet()
	return w, c, asked, stop
}

// TestOutliers: a backend that refuses connections, while others answer, gets no new flow for a while, comes back, and
// is away for longer the next time.
func TestOutliers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, _, kept, stop := newEjecting(t, natWeb)
		w.clients(20)
		w.expect()
		w.clients(8, "web01")
		w.expect("apply web: web01=1!e web02=2 web03=3")
		w.expectLog("WARN", "backend web01 (192.0.2.1) of web is ejected for 10s: it has answered ",
			" new connections in 5s, and refused ")
		b := stateOf(t, c, "web", "web01")
		if b.State != lb.Ejected || b.Ejection == nil || b.Ejection.Until.Sub(b.Ejection.Since) != 10*time.Second ||
			!strings.Contains(b.Reason, "has answered") || !b.Since.Equal(b.Ejection.Since) {
			t.Errorf("status %+v, ejection %+v", b, b.Ejection)
		}
		if s := statusOf(t, c).Services[0]; s.Outliers == nil || s.Outliers.FailuresPercent != 50 ||
			s.Outliers.PauseSeconds != 10 || s.OnDown != lb.KeepFlows {
			t.Errorf("the service: %+v", s.Outliers)
		}
		if !strings.Contains(string(kept.data), "192.0.2.1") {
			t.Errorf("saved %s", kept.data)
		}
		w.clients(8, "web01")
		w.expect("apply web: web01=1 web02=2 web03=3")
		w.expectLog("INFO", "backend web01 (192.0.2.1) of web is readmitted, after 10s")
		w.clients(8, "web01")
		w.expect("apply web: web01=1!e web02=2 web03=3")
		w.expectLog("WARN", "web01", "is ejected for 20s")
		// A reload keeps it, and one that takes the judgement away ends it.
		w.mustReload(c, strings.Replace(natWeb, "failures: 50%", "failures: 60%", 1))
		if b := stateOf(t, c, "web", "web01"); b.State != lb.Ejected {
			t.Errorf("after a reload: %+v", b)
		}
		w.done()
		w.mustReload(c, strings.Replace(natWeb, "    outliers: {failures: 50%, pause: 10s}\n", "", 1))
		if b := stateOf(t, c, "web", "web01"); b.State != lb.Up || b.Ejection != nil {
			t.Errorf("without judgement: %+v", b)
		}
		w.quiet()
		w.clients(60, "web01")
		w.expect()
		stop()
	})
}

// TestOutliersOverRestart: the next process goes on with the ejection, and ends it in time.
func TestOutliersOverRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _, kept, stop := newEjecting(t, natWeb)
		w.clients(8, "web01")
		stop()
		w.done()
		c, _ := watched(w, natWeb)
		opt := c.opt
		opt.Ejections = kept
		kept.data = append(kept.data, '\n')
		c = New(opt, c.view.Config)
		stop = w.run(c)
		synctest.Wait()
		if did := w.done(); !slices.Contains(did, "apply web: web01=1!e web02=2 web03=3") ||
			slices.Contains(did, "apply web: web01=1 web02=2 web03=3") {
			t.Errorf("a start did %q", did)
		}
		w.clients(2)
		if data := string(kept.data); !strings.HasSuffix(data, "\n") {
			t.Errorf("nothing has changed, and it was saved again: %s", data)
		}
		w.clients(9, "web01")
		w.expectLog("INFO", "web01", "is readmitted, after 10s")
		stop()
		// An unreadable file and an old one are no evidence.
		for _, data := range []string{"{",
			fmt.Sprintf(`{"clock":{"wall":%q},"backends":[{"backend":{"Service":{"VIP":"192.0.2.100","Port":80,"Protocol":"tcp"},"Address":"192.0.2.1","Port":80},"times":7}]}`,
				time.Now().Add(-2*time.Hour).Format(time.RFC3339))} {
			opt.Ejections = &noted{[]byte(data)}
			c = New(opt, c.view.Config)
			stop = w.run(c)
			w.clients(8, "web01")
			w.expectLog("WARN", "web01", "is ejected for 10s")
			if b := stateOf(t, c, "web", "web01"); b.Ejection == nil || b.Ejection.Times != 1 {
				t.Errorf("with %s: %+v", data, b.Ejection)
			}
			stop()
		}
		w.expectLog("WARN", "no backend is ejected until it fails again: reading the saved ejections")
	})
}

// TestOutliersAndChecks: the checks' verdict is the one that counts where there is one, and both leave the panic
// threshold and the backups as they are.
func TestOutliersAndChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := strings.Replace(natWeb, "    backends:", "    check: tcp\n    backends:", 1) +
			"      - {name: web04, address: 192.0.2.4, backup: true}\n"
		w, c, asked, _, stop := newEjecting(t, file)
		asked.say(t, c, healthy(), "web01", "web02", "web03", "web04")
		w.clients(8, "web01")
		w.done()
		// The checks, and not the ejector, report a fault that both find.
		asked.say(t, c, failing("refuses connections"), "web01")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1! web02=2 web03=3 web04=4^")
		time.Sleep(time.Second)
		synctest.Wait()
		if b := stateOf(t, c, "web", "web01"); b.State != lb.Unhealthy || b.Ejection != nil {
			t.Errorf("status %+v", b)
		}
		w.expectLog("INFO", "web01", "is no longer ejected", "its checks")
		// The one that is ejected while all others fail serves at once.
		w.clients(8, "web02")
		w.expect("apply web: web01=1! web02=2!e web03=3 web04=4^")
		asked.say(t, c, failing("refuses connections"), "web03", "web04")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1! web02=2 web03=3! web04=4!^")
		w.clients(2)
		w.expectLog("WARN", "web02", "is readmitted early", "no other backend serves")
		w.expect()
		stop()
	})
}

// TestOutliersAndBackups: the backups serve where all others are ejected or fail.
func TestOutliersAndBackups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := strings.Replace(natWeb,
			"      - {name: web02, address: 192.0.2.2}\n      - {name: web03, address: 192.0.2.3}",
			"      - {name: web02, address: 192.0.2.2, backup: true}", 1)
		w, c, _, _, stop := newEjecting(t, file)
		w.clients(8, "web01")
		w.expect("apply web: web01=1!e web02=2")
		w.expectLog("service web: its backups take new flows, for no other backend does")
		w.clients(8, "web01", "web02")
		w.expect("apply web: web01=1 web02=2!e^") // by its failures while it served
		w.clients(10)
		w.expect("apply web: web01=1 web02=2^")
		// The last that serves is not ejected, whatever it answers, and that is logged once.
		w.found("192.0.2.2", 0)
		w.clients(20, "web01")
		w.expect("apply web: web01=1 web02=-^")
		w.expectLog("WARN", "backend web01 (192.0.2.1) of web has answered",
			"and is not ejected: no other backend serves")
		expectProblems(t, c,
			"web01 (192.0.2.1) of web fails what clients send it, and is not ejected: no other backend serves")
		stop()
	})
}

// TestOperationsOutrankOutliers: a drained backend is not ejected besides; one that is enabled is readmitted at once;
// the last that serves cannot be drained but where the ejected one then serves.
func TestOperationsOutrankOutliers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, _, _, stop := newEjecting(t, natWeb)
		w.clients(8, "web01")
		w.done()
		done, err := c.Operate(t.Context(), ops.Order{Verb: ops.Enable, Service: "web", Backend: "web01", By: "uid 0"})
		if err != nil || len(done.Targets) != 1 || len(done.Notes) != 1 ||
			!strings.Contains(done.Notes[0], "web/web01 was ejected, and is readmitted early") {
			t.Errorf("%v, %+v", err, done)
		}
		w.expect("apply web: web01=1 web02=2 web03=3")
		if _, err := c.Operate(t.Context(), ops.Order{Verb: ops.Enable, Service: "web", Backend: "web01",
			By: "uid 0"}); !errors.Is(err, ops.ErrRefused) {
			t.Errorf("error %v", err)
		}
		if _, err := c.Operate(t.Context(), ops.Order{Verb: ops.Undo, By: "uid 0"}); !errors.Is(err, ops.ErrRefused) {
			t.Errorf("what leaves nothing to take back was taken back: %v", err)
		}
		w.clients(8, "web01")
		w.expect("apply web: web01=1!e web02=2 web03=3")
		for _, name := range []string{"web01", "web02"} {
			if _, err := c.Operate(t.Context(), ops.Order{Verb: ops.Drain, Service: "web", Backend: name,
				By: "uid 0"}); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		w.expect("apply web: web01=1~!e web02=2 web03=3", "apply web: web01=1~!e web02=2~ web03=3",
			"apply web: web01=1~ web02=2~ web03=3")
		if b := stateOf(t, c, "web", "web01"); b.State != lb.Draining || b.Ejection != nil {
			t.Errorf("status %+v", b)
		}
		stop()
	})
}

// TestOutliersUnread: counters that cannot be read are reported, and change nothing.
func TestOutliersUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, _, _, stop := newEjecting(t, natWeb)
		w.mu.Lock()
		w.countErr = errors.New("no such map")
		w.mu.Unlock()
		w.clients(20, "web01")
		w.expectLog("ERROR", "read the counters of backends for outlier detection: no such map")
		expectProblems(t, c, "no such map")
		w.mu.Lock()
		w.countErr = nil
		w.mu.Unlock()
		w.done()
		w.clients(10, "web01")
		if did := w.done(); !slices.Contains(did, "apply web: web01=1!e web02=2 web03=3") {
			t.Errorf("did %q", did)
		}
		stop()
	})
}

// TestSavedOutliers: a process of another build can read the saved outliers.
func TestSavedOutliers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _, kept, stop := newEjecting(t, natWeb)
		w.clients(8, "web01")
		var saved savedOutliers
		if err := json.Unmarshal(kept.data, &saved); err != nil || len(saved.Backends) != 1 ||
			saved.Backends[0].Times != 1 {
			t.Errorf("%v: %s", err, kept.data)
		}
		stop()
	})
}
