// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// checks are health checks whose verdicts a test gives.
type checks struct {
	mu          sync.Mutex
	wanted      map[lb.BackendKey]lb.CheckTarget
	verdicts    map[lb.BackendKey]lb.Verdict
	changed     map[lb.BackendKey]bool
	changes     chan struct{}
	unsupported string
	offline     string
}

func newChecks() *checks {
	return &checks{verdicts: map[lb.BackendKey]lb.Verdict{}, changed: map[lb.BackendKey]bool{},
		changes: make(chan struct{}, 1)}
}

func (c *checks) Unsupported(lb.Check) string { return c.unsupported }

func (c *checks) SetTargets(wanted []lb.CheckTarget) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = map[lb.BackendKey]lb.CheckTarget{}
	for _, w := range wanted {
		c.wanted[w.Backend] = w
		if _, known := c.verdicts[w.Backend]; !known {
			c.verdicts[w.Backend] = lb.Verdict{State: lb.HealthUnknown, Weight: 100}
		}
	}
	maps.DeleteFunc(c.verdicts, func(key lb.BackendKey, _ lb.Verdict) bool { _, there := c.wanted[key]; return !there })
}

func (c *checks) UpdateTargets(put []lb.CheckTarget, removed []lb.BackendKey) {
	c.mu.Lock()
	wanted := maps.Clone(c.wanted)
	c.mu.Unlock()
	for _, key := range removed {
		delete(wanted, key)
	}
	for _, w := range put {
		wanted[w.Backend] = w
	}
	c.SetTargets(slices.Collect(maps.Values(wanted)))
}

func (c *checks) SetOffline(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offline = why
}

func (c *checks) Changes() <-chan struct{} { return c.changes }

func (c *checks) Changed() map[lb.BackendKey]lb.Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := map[lb.BackendKey]lb.Verdict{}
	for key := range c.changed {
		changed[key] = c.verdicts[key]
	}
	clear(c.changed)
	return changed
}

func (c *checks) Verdicts() map[lb.BackendKey]lb.Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.verdicts)
}

func (c *checks) Verdict(key lb.BackendKey) (lb.Verdict, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.verdicts[key]
	return v, ok
}

func (c *checks) CheckNow(_ context.Context, wanted lb.CheckTarget,
	report func(lb.CheckStep)) ([]lb.CheckResult, error) {
	report(lb.CheckStep{Name: "connect", Took: time.Millisecond, Text: "refused", Failed: true})
	return []lb.CheckResult{{State: lb.Failing, Answer: "connection refused", Failed: 1}}, nil
}

// starts gives a verdict on each backend of a controller that is yet to start.
func (c *checks) starts(of *Controller, v lb.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range of.view.Config.Services {
		for _, b := range s.Backends {
			c.verdicts[s.BackendKey(b)] = v
		}
	}
}

// say gives verdicts on the backends that have these names, of all services.
func (c *checks) say(t *testing.T, of *Controller, v lb.Verdict, names ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	of.mu.Lock()
	cfg := of.view.Config
	of.mu.Unlock()
	for _, s := range cfg.Services {
		for _, b := range s.Backends {
			if slices.Contains(names, b.Name) {
				key := s.BackendKey(b)
				if _, watched := c.wanted[key]; !watched {
					t.Errorf("%s is not watched", b.Name)
				}
				c.verdicts[key], c.changed[key] = v, true
			}
		}
	}
	signal(c.changes)
}

// failing and healthy are verdicts of now.
func failing(reason string) lb.Verdict {
	return lb.Verdict{State: lb.Failing, Reason: reason, Since: time.Now(), Weight: 100}
}

func healthy() lb.Verdict { return lb.Verdict{State: lb.Healthy, Since: time.Now(), Weight: 100} }

// watched is a controller whose backends all answer ARP, with checks.
func watched(w *world, file string) (*Controller, *checks) {
	w.answer("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4")
	opt, c := w.controller(web).opt, newChecks()
	opt.Checks = c
	return New(opt, parse(w.t, file)), c
}

// runningChecked is running, with checks and backends that all answer ARP.
func runningChecked(t *testing.T, file string) (w *world, c *Controller, asked *checks, stop func() error) {
	t.Helper()
	w = newWorld(t)
	c, asked = watched(w, file)
	stop = w.run(c)
	w.quiet()
	return w, c, asked, stop
}

const checkedWeb = `
interface: eth9
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    check: {type: tcp, via: address}
    backends:
      - {name: web01, address: 192.0.2.1}
      - {name: web02, address: 192.0.2.2}
`

// stateOf returns a backend as the status shows it.
func stateOf(t *testing.T, c *Controller, service, backend string) ops.Backend {
	t.Helper()
	for _, s := range statusOf(t, c).Services {
		for _, b := range s.Backends {
			if s.Name == service && b.Name == backend {
				return b
			}
		}
	}
	t.Fatalf("no %s/%s", service, backend)
	return ops.Backend{}
}

// TestVerdicts: a backend that fails takes no new flow within the time that changes have to come
// together, and one that passes again does.
func TestVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, stop := runningChecked(t, checkedWeb)
		since := time.Now()
		asked.say(t, c, failing("refuses connections"), "web01")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1! web02=2")
		w.expectLog("WARN", "backend web01 (192.0.2.1) of web is unhealthy: it refuses connections")
		b := stateOf(t, c, "web", "web01")
		if b.State != lb.Unhealthy || b.Reason != "refuses connections" || b.Health == nil ||
			b.Health.State != lb.Failing || !b.Health.Since.Equal(since) {
			t.Errorf("status %+v, health %+v", b, b.Health)
		}
		// A new answer with the same verdict is shown, and changes nothing.
		v := failing("answers with status 503")
		v.Since = since
		asked.say(t, c, v, "web01")
		time.Sleep(time.Second)
		asked.say(t, c, healthy(), "web01")
		time.Sleep(settleDelay)
		w.expectLog("INFO", "backend web01 (192.0.2.1) of web is healthy again, after 1s")
		did := w.done()
		if len(did) != 2 || did[1] != "apply web: web01=1 web02=2" {
			t.Errorf("did %q", did)
		}
		if b := stateOf(t, c, "web", "web01"); b.State != lb.Up || b.Reason != "" {
			t.Errorf("status %+v", b)
		}
		stop()
	})
}

// TestVerdictsActAtOnce: a verdict that comes alone changes the data plane without delay, and those
// that come soon after it change it together.
func TestVerdictsActAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, stop := runningChecked(t, checkedWeb)
		time.Sleep(time.Second)
		w.done()
		asked.say(t, c, failing("refuses connections"), "web01")
		synctest.Wait()
		if did := w.done(); !slices.Equal(did, []string{"apply web: web01=1! web02=2"}) {
			t.Errorf("at once it did %q", did)
		}
		time.Sleep(settleDelay / 4)
		asked.say(t, c, healthy(), "web01")
		synctest.Wait()
		asked.say(t, c, failing("refuses connections"), "web02")
		synctest.Wait()
		if did := w.done(); len(did) != 0 {
			t.Errorf("within the time that changes have to come together it did %q", did)
		}
		time.Sleep(settleDelay)
		if did := w.done(); !slices.Equal(did, []string{"apply web: web01=1 web02=2!"}) {
			t.Errorf("after that time it did %q", did)
		}
		stop()
	})
}

// TestPanic: where too few are healthy, all are used, and the log has that once; with 0%, none is.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, stop := runningChecked(t, checkedWeb)
		asked.say(t, c, failing("does not answer within 1s"), "web01", "web02")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=2") // nothing changes for packets
		w.expectLog("WARN",
			"service web: 0 of 2 backends are healthy, which is less than panic, 1%: new flows go to all of them")
		synctest.Wait()
		expectProblems(t, c, "less than panic")
		if b := stateOf(t, c, "web", "web01"); b.State != lb.Up || b.Health.State != lb.Failing {
			t.Errorf("status %+v", b)
		}
		asked.say(t, c, healthy(), "web02")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1! web02=2")
		w.expectLog("INFO", "service web: new flows go to healthy backends only again: 1 of 2")
		never := strings.Replace(checkedWeb, "    check:", "    panic: 0%\n    check:", 1)
		w.mustReload(c, never)
		w.done()
		asked.say(t, c, failing("refuses connections"), "web02")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1! web02=2!")
		synctest.Wait()
		expectProblems(t, c, "no backend that takes new flows")
		// Verdicts are no reason to refuse a reload.
		if err := finished(t, w.reload(c, never)); err != nil {
			t.Error(err)
		}
		stop()
	})
}

// TestBackups: a backup serves while no other backend does, whether checks or ARP say so.
func TestBackups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, stop := runningChecked(t, checkedWeb+"      - {name: web03, address: 192.0.2.3, backup: true}\n")
		if b := stateOf(t, c, "web", "web03"); b.State != lb.Standby || !b.Backup {
			t.Errorf("status %+v", b)
		}
		asked.say(t, c, failing("refuses connections"), "web01")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1! web02=2 web03=3^")
		w.found("192.0.2.2", 0)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1! web02=- web03=3")
		w.expectLog("WARN", "service web: its backups take new flows, for no other backend does")
		asked.say(t, c, failing("refuses connections"), "web03")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=- web03=3!^") // the panic threshold: the primaries are worth no less
		asked.say(t, c, healthy(), "web01")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=- web03=3!^")
		stop()
	})
}

// TestOperationsOutrankChecks: a drained backend stays drained, whatever its health is; one that
// is enabled while it fails takes no flow, and the answer has a note of it.
func TestOperationsOutrankChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, asked, stop := runningChecked(t, checkedWeb+"      - {name: web03, address: 192.0.2.3}\n")
		drain := ops.Order{Verb: ops.Drain, Service: "web", Backend: "web01", By: "uid 0"}
		done, err := c.Operate(t.Context(), drain)
		if err != nil || len(done.Notes) != 1 || !strings.Contains(done.Notes[0], "whatever its health checks say") {
			t.Errorf("%v, notes %q", err, done.Notes)
		}
		asked.say(t, c, failing("refuses connections"), "web01")
		time.Sleep(settleDelay)
		if b := stateOf(t, c, "web", "web01"); b.State != lb.Draining || b.Reason != "refuses connections" {
			t.Errorf("status %+v", b)
		}
		drain.Verb = ops.Enable
		done, err = c.Operate(t.Context(), drain)
		if err != nil || len(done.Notes) != 1 ||
			!strings.Contains(done.Notes[0],
				"web/web01 refuses connections: it takes no new flow until its health checks pass") {
			t.Errorf("%v, notes %q", err, done.Notes)
		}
		// The last healthy one is not drained: all others fail.
		asked.say(t, c, failing("refuses connections"), "web02")
		time.Sleep(settleDelay)
		synctest.Wait()
		_, err = c.Operate(t.Context(), ops.Order{Verb: ops.Drain, Service: "web", Backend: "web03", By: "uid 0"})
		if !errors.Is(err, ops.ErrRefused) || !strings.Contains(err.Error(), "web01 unhealthy") {
			t.Errorf("error %v", err)
		}
		stop()
	})
}

// TestEnableByForce: an operator who knows better than the checks has a backend take new flows all the
// same, until the next word on it, over reloads.
func TestEnableByForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, stop := runningChecked(t, checkedWeb)
		enable := ops.Order{Verb: ops.Enable, Service: "web", Backend: "web01", Force: true, By: "kim"}
		asked.say(t, c, failing("answers 500"), "web01")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1! web02=2")
		done, err := c.Operate(t.Context(), enable)
		if err != nil || len(done.Notes) != 1 ||
			!strings.Contains(done.Notes[0], "takes new flows whatever its health checks say, until") {
			t.Fatalf("%+v, error %v", done, err)
		}
		w.expect("apply web: web01=1 web02=2")
		if b := stateOf(t, c, "web", "web01"); b.State != lb.Up || b.Forced == nil || b.Forced.By != "kim" ||
			b.Health.State != lb.Failing {
			t.Errorf("status %+v", b)
		}
		asked.say(t, c, failing("hangs"), "web01")
		time.Sleep(settleDelay)
		w.done()
		if b := stateOf(t, c, "web", "web01"); b.State != lb.Up {
			t.Errorf("after another verdict: %+v", b)
		}
		if _, err := c.Operate(t.Context(), enable); !errors.Is(err, ops.ErrRefused) ||
			!strings.Contains(err.Error(), "enabled by force already, by kim") {
			t.Errorf("once more: %v", err)
		}
		enable.Force = false
		if done, err := c.Operate(t.Context(), enable); err != nil || len(done.Notes) != 1 ||
			!strings.Contains(done.Notes[0],
				"takes no new flow until its health checks pass, or it is enabled with --force") {
			t.Errorf("%+v, error %v", done, err)
		}
		w.expect("apply web: web01=1! web02=2")
		if _, err := c.Operate(t.Context(), ops.Order{Verb: ops.Undo, By: "kim"}); err != nil {
			t.Error(err)
		}
		w.expect("apply web: web01=1 web02=2")
		for _, verb := range []ops.Verb{ops.Drain, ops.Disable} {
			if _, err := c.Operate(t.Context(), ops.Order{Verb: verb, Service: "web", Backend: "web01",
				By: "kim"}); err != nil {
				t.Error(err)
			}
			if b := stateOf(t, c, "web", "web01"); b.Forced != nil {
				t.Errorf("after %s: %+v", verb, b)
			}
		}
		stop()
	})
}

// TestForceWithoutChecks: there is nothing to outrank.
func TestForceWithoutChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, stop := allUp(t, "")
		_, err := c.Operate(t.Context(), ops.Order{Verb: ops.Enable, Service: "web", Backend: "web01", Force: true,
			By: "kim"})
		if !errors.Is(err, ops.ErrRefused) ||
			!strings.Contains(err.Error(), "web has neither health checks nor outliers") {
			t.Errorf("error = %v", err)
		}
		stop()
	})
}

// TestAgent: an agent's share scales weights, and its drain drains.
func TestAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, stop := runningChecked(t, strings.Replace(checkedWeb, "{type: tcp, via: address}",
			"{type: agent, port: 9000}", 1))
		half := healthy()
		half.Weight = 50
		asked.say(t, c, half, "web01")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1*50 web02=2*100")
		w.expectLog("backend web01 (192.0.2.1) of web asks for 50% of its weight")
		if b := stateOf(t, c, "web", "web01"); b.Weight != 1 || b.ConfiguredWeight != nil ||
			b.Health.WeightPercent != 50 {
			t.Errorf("status %+v", b)
		}
		none := healthy()
		none.Weight = 0
		asked.say(t, c, none, "web01")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1*0 web02=2*100")
		if b := stateOf(t, c, "web", "web01"); b.State != lb.WeightZero || b.Weight != 1 || b.ConfiguredWeight != nil {
			t.Errorf("a backend whose agent asks for 0 %%: status %+v", b)
		}
		half.Drain = true
		asked.say(t, c, half, "web01")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1~*50 web02=2*100")
		if b := stateOf(t, c, "web", "web01"); b.State != lb.Draining || !b.Health.Drain {
			t.Errorf("status %+v", b)
		}
		stop()
	})
}

// TestReportedWeight: the weight that a backend reports replaces the configured one, but neither an operator's nor 0.
func TestReportedWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, stop := runningChecked(t, checkedWeb)
		five := healthy()
		five.Reported = lb.ReportedWeight{Known: true, Value: 5}
		asked.say(t, c, five, "web01")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1*5 web02=2")
		w.expectLog("backend web01 (192.0.2.1) of web reports the weight 5")
		if b := stateOf(t, c, "web", "web01"); b.Weight != 5 || b.ConfiguredWeight == nil || *b.ConfiguredWeight != 1 {
			t.Errorf("status %+v", b)
		}
		operated := func(weight int64) {
			t.Helper()
			_, err := c.Operate(t.Context(), ops.Order{Verb: ops.Weight, Service: "web", Backend: "web01", Weight: weight,
				By: "kim"})
			if err != nil {
				t.Error(err)
			}
		}
		operated(3)
		w.expect("apply web: web01=1*3 web02=2")
		if b := stateOf(t, c, "web", "web01"); b.Weight != 3 {
			t.Errorf("status %+v", b)
		}
		operated(1)
		w.expect("apply web: web01=1*5 web02=2")
		asked.say(t, c, healthy(), "web01") // a response without the header field
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=2")
		five.Reported.Value = 0
		asked.say(t, c, five, "web01")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1*0 web02=2")
		stop()
	})
}

// TestChecksOverReload: verdicts outlive a reload, and the checks follow the configuration.
func TestChecksOverReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, stop := runningChecked(t, checkedWeb)
		asked.say(t, c, failing("refuses connections"), "web01")
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1! web02=2")
		w.mustReload(c, checkedWeb+"      - {name: web03, address: 192.0.2.3}\n")
		w.expect("watch 192.0.2.1 192.0.2.2 192.0.2.3", "apply web: web01=1! web02=2 web03=3",
			"watch 192.0.2.1 192.0.2.2 192.0.2.3", "announce 192.0.2.100 on eth9")
		if len(asked.wanted) != 3 {
			t.Errorf("%d backends are watched", len(asked.wanted))
		}
		for key, wanted := range asked.wanted {
			if wanted.Mode != lb.L2DSR { // or services of one VIP would share no check by way of it
				t.Errorf("%v is asked by the mode %q", key, wanted.Mode)
			}
		}
		asked.unsupported = "cannot be made here"
		err := finished(t, w.reload(c, checkedWeb))
		if err == nil || !strings.Contains(err.Error(), "f:7: services[0].check: cannot be made here") ||
			len(asked.wanted) != 3 {
			t.Errorf("error %v, watched %d", err, len(asked.wanted))
		}
		asked.unsupported = ""
		w.mustReload(c, web)
		if b := stateOf(t, c, "web", "web01"); b.State != lb.Up || b.Health != nil || len(asked.wanted) != 0 {
			t.Errorf("status %+v, watched %d", b, len(asked.wanted))
		}
		stop()
	})
}

// TestVerdictsOfTheStart: the verdicts known at the start hold from the first state on.
func TestVerdictsOfTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, asked := watched(w, checkedWeb)
		s := c.view.Config.Services[0]
		asked.verdicts[s.BackendKey(s.Backends[0])] = failing("refuses connections")
		stop := w.run(c)
		w.expect("watch 192.0.2.1 192.0.2.2", "apply web: web01=1! web02=2", "add 192.0.2.100",
			"announce 192.0.2.100 on eth9")
		w.expectLog("WARN", "web01", "is unhealthy")
		stop()
	})
}

// TestVerdictsAreRetried: verdicts that the data plane did not take are handed to it again.
func TestVerdictsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, stop := runningChecked(t, checkedWeb)
		w.failApply(errors.New("no room"))
		asked.say(t, c, failing("refuses connections"), "web01")
		time.Sleep(settleDelay)
		w.expect("fail to apply web: web01=1! web02=2")
		w.failApply(nil)
		time.Sleep(retryFirst + settleDelay)
		w.expect("apply web: web01=1! web02=2")
		w.expectLog("is unhealthy: it refuses connections")
		stop()
	})
}

// TestManyVerdicts: the log is bounded, however many backends change their health, and those that were not logged are
// counted; one backend of many services is one line.
func TestManyVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, names := "interface: eth9\nservices:\n", []string{}
		for i := range 150 {
			name := fmt.Sprintf("b%d", i)
			names = append(names, name)
			file += fmt.Sprintf(
				"  - name: s%d\n    vip: 192.0.2.100\n    port: %d\n    check: {type: tcp, via: address}\n    panic: 0%%\n    backends:\n      - {name: shared, address: 192.0.2.1}\n      - {name: %s, address: 192.0.2.2}\n", i, i+1, name)
		}
		w, c, asked, stop := runningChecked(t, file)
		asked.say(t, c, failing("refuses connections"), names...)
		time.Sleep(settleDelay + healthLogInterval)
		synctest.Wait()
		w.mu.Lock()
		lines := strings.Count(w.log.String(), "is unhealthy")
		w.mu.Unlock()
		if lines != loglines.MaxLines {
			t.Errorf("%d lines, want %d", lines, loglines.MaxLines)
		}
		w.expectLog("50 more changes of the backends' health in the last 10s")
		stop()
	})
}

func TestCheckNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, _, stop := runningChecked(t, checkedWeb+dns)
		got, err := c.Check(t.Context(), "web", "web02")
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != "web/web02" || len(got.Steps) != 1 || got.Steps[0].TookSeconds != 0.001 ||
			len(got.Results) != 1 ||
			got.Results[0].Answer != "connection refused" || got.Checks[0].Check != "tcp" ||
			got.Checks[0].Via != lb.ViaAddress || got.State != lb.Up {
			t.Errorf("checked %+v", got)
		}
		if _, err := c.Check(t.Context(), "web", "web09"); !errors.Is(err, ops.ErrNotFound) {
			t.Errorf("error %v", err)
		}
		if _, err := c.Check(t.Context(), "dns", "dns01"); !errors.Is(err, ops.ErrRefused) {
			t.Errorf("error %v", err)
		}
		stop()
	})
}

// TestChecksKnowWhenNoInterfaceIsUp: while all interfaces are down, no check that fails is evidence.
func TestChecksKnowWhenNoInterfaceIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, asked, stop := runningChecked(t, checkedWeb)
		for _, up := range []bool{false, true, false, true} {
			w.changeLink(func() { w.links[0].Up = up })
			time.Sleep(2 * settleDelay)
			synctest.Wait()
			asked.mu.Lock()
			why := asked.offline
			asked.mu.Unlock()
			if want := map[bool]string{false: "interface eth9 is down"}[up]; why != want {
				t.Errorf("up %t: the checks are told %q, expected %q", up, why, want)
			}
		}
		stop()
	})
	eth8, eth9 := iface.State{Name: "eth8"}, iface.State{Name: "eth9"}
	if why := view.Offline([]iface.State{eth8, eth9}); why != "interfaces eth8, eth9 are down" {
		t.Error(why)
	}
	eth9.Up = true
	if why := view.Offline([]iface.State{eth8, eth9}); why != "" {
		t.Error(why)
	}
}
