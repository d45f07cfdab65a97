// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

var slowWeb = strings.Replace(checkedWeb, "    check:", "    slow_start: 10s\n    check:", 1)

// weights returns the data plane's weights of web's first n backends.
func (w *world) weights(n int) string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, b := range w.state.Services[0].Backends[:n] {
		all = append(all, fmt.Sprint(b.Weight))
	}
	return strings.Join(all, " ")
}

// TestSlowStart: none at the start of the daemon; a backend that rises has its share by ten steps,
// beside an agent's share and an operator's weight.
func TestSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, stop := runningChecked(t, slowWeb)
		if got := w.weights(2); got != "100 100" {
			t.Errorf("at the start: weights %s", got)
		}
		asked.say(t, c, healthy(), "web01", "web02")
		time.Sleep(settleDelay)
		asked.say(t, c, failing("refuses connections"), "web02")
		time.Sleep(time.Minute)
		asked.say(t, c, healthy(), "web02")
		time.Sleep(settleDelay)
		began := time.Now()
		w.done()
		w.expectLog("INFO", "backend web02 (192.0.2.2) of web begins with 5% of its weight, and has all of it in 10s")
		for _, step := range []struct {
			after time.Duration
			want  string
		}{{0, "100 5"}, {900 * time.Millisecond, "100 5"}, {1100 * time.Millisecond, "100 15"},
			{5500 * time.Millisecond, "100 55"}, {9900 * time.Millisecond, "100 95"}} {
			time.Sleep(time.Until(began.Add(step.after)))
			if got := w.weights(2); got != step.want {
				t.Errorf("after %s: weights %s, want %s", step.after, got, step.want)
			}
		}
		if b := stateOf(t, c, "web", "web02"); b.SlowStart == nil || b.SlowStart.Percent != 95 ||
			b.SlowStart.Until.Sub(began.Add(10*time.Second)).Abs() > settleDelay {
			t.Errorf("slow start %+v", b.SlowStart)
		}
		time.Sleep(time.Until(began.Add(time.Hour)))
		if got := w.weights(2); got != "100 100" {
			t.Errorf("at the end: weights %s", got)
		}
		if did := w.done(); len(did) != view.SlowSteps {
			t.Errorf("%d changes: %q", len(did), did)
		}
		if b := stateOf(t, c, "web", "web02"); b.SlowStart != nil {
			t.Errorf("slow start %+v", b.SlowStart)
		}
		stop()
	})
}

// TestSlowStartBeside: an operator's weight and an agent's share are of the share, and a backend that falls and rises
// begins again.
func TestSlowStartBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, stop := runningChecked(t, slowWeb)
		asked.say(t, c, failing("refuses connections"), "web02")
		time.Sleep(time.Second)
		asked.say(t, c, healthy(), "web02")
		time.Sleep(settleDelay + 5500*time.Millisecond)
		half := healthy()
		half.Weight = 40
		asked.say(t, c, half, "web02")
		time.Sleep(settleDelay)
		if got := w.weights(2); got != "100 22" { // 40% of 55%
			t.Errorf("with an agent: weights %s", got)
		}
		if _, err := c.Operate(t.Context(), ops.Order{Verb: ops.Weight, Service: "web", Backend: "web02",
			Weight: 3}); err != nil {
			t.Fatal(err)
		}
		if got := w.weights(2); got != "100 66" {
			t.Errorf("with a weight of 3: weights %s", got)
		}
		asked.say(t, c, failing("refuses connections"), "web02")
		time.Sleep(settleDelay)
		asked.say(t, c, healthy(), "web02")
		time.Sleep(settleDelay)
		if got := w.weights(2); got != "100 15" {
			t.Errorf("anew: weights %s", got)
		}
		stop()
	})
}

// TestSlowStartBegins: other causes of a slow start, and cases that have none.
func TestSlowStartBegins(t *testing.T) {
	operate := func(t *testing.T, c *Controller, verb ops.Verb) {
		t.Helper()
		if _, err := c.Operate(t.Context(), ops.Order{Verb: verb, Service: "web", Backend: "web02"}); err != nil {
			t.Fatal(err)
		}
	}
	slow := strings.Replace(slowWeb, "    check: {type: tcp, via: address}\n", "", 1)
	for name, test := range map[string]struct {
		do   func(*testing.T, *world, *Controller)
		want string
	}{
		"enabled": {func(t *testing.T, _ *world, c *Controller) {
			operate(t, c, ops.Drain)
			operate(t, c, ops.Enable)
		}, "100 5"},
		"found again": {func(_ *testing.T, w *world, _ *Controller) {
			w.found("192.0.2.2", 0)
			time.Sleep(2 * settleDelay)
			w.found("192.0.2.2", 2)
		}, "100 5"},
		"added": {func(t *testing.T, w *world, c *Controller) {
			if err := finished(t, w.reload(c, slow+"      - {name: web03, address: 192.0.2.3}\n")); err != nil {
				t.Fatal(err)
			}
		}, "100 100 5"},
		"reloaded": {func(t *testing.T, w *world, c *Controller) {
			if err := finished(t, w.reload(c, slow)); err != nil {
				t.Fatal(err)
			}
		}, "100 100"},
		"switched on": {func(t *testing.T, w *world, c *Controller) {
			for _, file := range []string{web, slow} {
				if err := finished(t, w.reload(c, file)); err != nil {
					t.Fatal(err)
				}
			}
		}, "100 100"},
		"kept over a reload": {func(t *testing.T, w *world, c *Controller) {
			operate(t, c, ops.Drain)
			operate(t, c, ops.Enable)
			time.Sleep(5500 * time.Millisecond)
			if err := finished(t, w.reload(c, strings.Replace(slow, "10s", "11s", 1))); err != nil {
				t.Fatal(err)
			}
		}, "100 55"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c, _ := watched(w, slow)
				stop := w.run(c)
				w.quiet()
				test.do(t, w, c)
				time.Sleep(2 * settleDelay)
				if got := w.weights(strings.Count(test.want, " ") + 1); got != test.want {
					t.Errorf("weights %s, want %s", got, test.want)
				}
				stop()
			})
		})
	}
}

// TestSlowStartFirstFound: a backend that answers ARP a while after the daemon's start has no slow start; one that its
// checks have found to be down by then has one.
func TestSlowStartFirstFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, asked := watched(w, slowWeb)
		w.found("192.0.2.1", 0)
		w.found("192.0.2.2", 0)
		stop := w.run(c)
		w.quiet()
		asked.say(t, c, failing("does not answer within 1s"), "web02")
		time.Sleep(2 * settleDelay)
		asked.say(t, c, healthy(), "web02")
		w.found("192.0.2.1", 1)
		w.found("192.0.2.2", 2)
		time.Sleep(2 * settleDelay)
		if got := w.weights(2); got != "100 5" {
			t.Errorf("weights %s", got)
		}
		stop()
	})
}

// TestSlowStartOverRestart: a process that goes on with the verdicts of one before goes on with
// slow start.
func TestSlowStartOverRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, asked := watched(w, slowWeb)
		for i, ago := range []time.Duration{time.Hour, 5500 * time.Millisecond} {
			s := c.view.Config.Services[0]
			v := healthy()
			v.Since = v.Since.Add(-ago)
			asked.verdicts[s.BackendKey(s.Backends[i])] = v
		}
		stop := w.run(c)
		if got := w.weights(2); got != "100 55" {
			t.Errorf("weights %s", got)
		}
		time.Sleep(5 * time.Second)
		if got := w.weights(2); got != "100 100" {
			t.Errorf("later: weights %s", got)
		}
		stop()
	})
}

// TestSlowStartIsRetried: a step that the data plane did not take is tried again.
func TestSlowStartIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, stop := runningChecked(t, slowWeb)
		asked.say(t, c, failing("refuses connections"), "web02")
		time.Sleep(settleDelay)
		asked.say(t, c, healthy(), "web02")
		time.Sleep(settleDelay)
		w.failApply(errors.New("no room"))
		time.Sleep(1100 * time.Millisecond)
		w.expectLog("give backends in slow start a larger share: no room")
		w.failApply(nil)
		time.Sleep(10*time.Second + retryMax)
		if got := w.weights(2); got != "100 100" {
			t.Errorf("weights %s", got)
		}
		stop()
	})
}
