// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// shop is a service that shares the backend 192.0.2.1 with web.
const shop = `
  - name: shop
    vip: 192.0.2.101
    port: 80
    backends:
      - {name: s1, address: 192.0.2.1}
      - {name: s9, address: 192.0.2.9, weight: 5}
`

// allUp is running, with web and more, whose backends are all up.
func allUp(t *testing.T, more string) (*world, *Controller, func() error) {
	t.Helper()
	return running(t, web+more, "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.9")
}

// do does "drain web/web01" and the like, all of them by kim.
func do(t *testing.T, c *Controller, line string) (ops.Operation, error) {
	t.Helper()
	words := strings.Fields(line)
	order := ops.Order{Verb: ops.Verb(words[0]), By: "kim"}
	if len(words) > 1 {
		order.Service, order.Backend, _ = strings.Cut(words[1], "/")
	}
	for _, word := range words[min(2, len(words)):] {
		var err error
		switch {
		case word == "all":
			order.AllServices = true
		case order.Verb == ops.Weight:
			_, err = fmt.Sscan(word, &order.Weight)
		default:
			order.Deadline, err = time.ParseDuration(word)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return c.Operate(t.Context(), order)
}

func must(t *testing.T, c *Controller, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if _, err := do(t, c, line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

// operations lists the operations in force and those that can be undone, a line each.
func operations(t *testing.T, c *Controller) (lines []string) {
	t.Helper()
	got, err := c.Operations()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range got.InForce {
		line := o.Target.String()
		if d := o.Drain; d != nil {
			line += fmt.Sprintf(" drain=%t by %s", d.On, d.By)
			if !d.Deadline.IsZero() {
				line += " deadline"
			}
			if d.Out {
				line += " out"
			}
		}
		if o.Weight != nil {
			line += fmt.Sprintf(" weight=%d by %s", o.Weight.Value, o.Weight.By)
		}
		lines = append(lines, line)
	}
	for _, o := range got.History {
		line := "undo " + string(o.Verb)
		for _, target := range o.Targets {
			line += " " + target.String()
		}
		if o.Lost != "" {
			line += " lost"
		}
		lines = append(lines, line)
	}
	return lines
}

func wantOperations(t *testing.T, c *Controller, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, operations(t, c)); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

func TestOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, shop)
		began := time.Now()
		steps := []struct {
			do, want string
			in       []string
		}{
			{"drain web/web01", "apply web: web01=1~ web02=2 shop: s1=1 s9=9*5",
				[]string{"web/web01 drain=true by kim", "undo drain web/web01"}},
			{"weight shop/s9 20", "apply web: web01=1~ web02=2 shop: s1=1 s9=9*20",
				[]string{"web/web01 drain=true by kim", "shop/s9 weight=20 by kim", "undo weight shop/s9",
					"undo drain web/web01"}},
			{"enable web/web01", "apply web: web01=1 web02=2 shop: s1=1 s9=9*20",
				[]string{"shop/s9 weight=20 by kim", "undo enable web/web01", "undo weight shop/s9",
					"undo drain web/web01"}},
			{"undo", "apply web: web01=1~ web02=2 shop: s1=1 s9=9*20",
				[]string{"web/web01 drain=true by kim", "shop/s9 weight=20 by kim", "undo weight shop/s9",
					"undo drain web/web01"}},
			{"undo", "apply web: web01=1~ web02=2 shop: s1=1 s9=9*5",
				[]string{"web/web01 drain=true by kim", "undo drain web/web01"}},
			{"undo", "apply web: web01=1 web02=2 shop: s1=1 s9=9*5", nil},
			{"drain shop/s1 all", "apply web: web01=1~ web02=2 shop: s1=1~ s9=9*5",
				[]string{"web/web01 drain=true by kim", "shop/s1 drain=true by kim", "undo drain web/web01 shop/s1"}},
			{"enable shop/s1", "apply web: web01=1~ web02=2 shop: s1=1 s9=9*5",
				[]string{"web/web01 drain=true by kim", "undo enable shop/s1", "undo drain web/web01 shop/s1"}},
			{"enable shop/s1 all", "apply web: web01=1 web02=2 shop: s1=1 s9=9*5",
				[]string{"undo enable web/web01", "undo enable shop/s1", "undo drain web/web01 shop/s1"}},
			{"weight web/web01 0", "apply web: web01=1*0 web02=2 shop: s1=1 s9=9*5",
				[]string{"web/web01 weight=0 by kim", "undo weight web/web01", "undo enable web/web01",
					"undo enable shop/s1", "undo drain web/web01 shop/s1"}},
			{"weight web/web01 1", "apply web: web01=1 web02=2 shop: s1=1 s9=9*5", // as configured: nothing is in force
				[]string{"undo weight web/web01", "undo weight web/web01", "undo enable web/web01",
					"undo enable shop/s1", "undo drain web/web01 shop/s1"}},
		}
		for _, step := range steps {
			must(t, c, step.do)
			w.expect(step.want)
			wantOperations(t, c, step.in...)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the operations took %v to reach the data plane", waited)
		}
		must(t, c, "drain web/web02")
		w.expectLog("drain web/web01 and 1 more, by kim")
		w.expectLog("enable web/web01, by kim at", "is undone by kim")
		stop()
		w.expectLog("WARN", "what operations have changed ends now", "backends: 1")
	})
}

// TestOperationsRefused: each is refused with its reason, and changes nothing.
func TestOperationsRefused(t *testing.T) {
	const down = "down" // makes web02 fail
	tests := []struct {
		before []string
		do     string
		kind   error
		want   string
	}{
		{nil, "drain wbe/web01", ops.ErrNotFound,
			"drain wbe/web01: not found: there is no service wbe; did you mean web?"},
		{nil, "drain nothing/web01", ops.ErrNotFound, "there is no service nothing; there is shop, web"},
		{nil, "weight web/web1 7", ops.ErrNotFound,
			"weight web/web1: not found: web has no backend web1; did you mean web01 or web02?"},
		{nil, "weight web/web01 65536", ops.ErrBadRequest,
			"weight web/web01: not possible: the weight 65536 is out of range: 0 to 65535"},
		{nil, "weight web/web01 -1", ops.ErrBadRequest, "the weight -1 is out of range"},
		{nil, "weight web/web01 1", ops.ErrRefused, "weight web/web01: refused: web01 has the weight 1 already"},
		{nil, "enable web/web01", ops.ErrRefused, "enable web/web01: refused: web01 is neither drained nor disabled"},
		{[]string{"weight web/web01 0"}, "enable web/web01", ops.ErrRefused,
			"web01 is neither drained nor disabled; it takes no new flow because its weight was set to 0"},
		{nil, "enable web/web01 all", ops.ErrRefused, "there is nothing to change in any service"},
		{nil, "undo", ops.ErrRefused, "undo: refused: there is no operation to undo"},
		{[]string{"drain web/web01"}, "drain web/web01", ops.ErrRefused, "web01 is drained already, by kim since "},
		{[]string{"drain web/web01"}, "drain web/web02", ops.ErrRefused,
			"drain web/web02: refused: web would have no backend left that takes new flows (then: web01 drained, web02 drained); give it another first"},
		{[]string{"drain web/web01"}, "weight web/web02 0", ops.ErrRefused, "(then: web01 drained, web02 of weight 0)"},
		{[]string{"weight web/web02 0"}, "drain shop/s1 all", ops.ErrRefused,
			"web would have no backend left that takes new flows (then: web01 drained, web02 of weight 0)"},
		{[]string{down}, "drain web/web01", ops.ErrRefused, "(then: web01 drained, web02 does not answer)"},
		{[]string{"drain web/web01", "enable web/web01", "drain web/web02"}, "drain web/web01 1h", ops.ErrRefused,
			"no backend left"},
		{[]string{"drain web/web01", "enable web/web01", down}, "undo", ops.ErrRefused,
			"undo: refused: web would have no backend left that takes new flows (then: web01 drained, web02 does not answer)"},
	}
	for _, test := range tests {
		t.Run(test.do, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c, stop := allUp(t, shop)
				for _, line := range test.before {
					if line == down {
						w.found("192.0.2.2", 0)
						time.Sleep(settleDelay)
						synctest.Wait()
					} else {
						must(t, c, line)
					}
				}
				w.done()
				before := operations(t, c)
				_, err := do(t, c, test.do)
				if !errors.Is(err, test.kind) || !strings.Contains(fmt.Sprint(err), test.want) {
					t.Errorf("error = %v, want one of the kind %v with %q", err, test.kind, test.want)
				}
				w.expect()
				wantOperations(t, c, before...)
				stop()
			})
		})
	}
}

// TestDrainOfWhatIsDown: it takes nothing away.
func TestDrainOfWhatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, "")
		w.found("192.0.2.1", 0)
		w.found("192.0.2.2", 0)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=- web02=-")
		must(t, c, "drain web/web01")
		w.expect("apply web: web01=-~ web02=-")
		if _, err := do(t, c, "drain web/web02"); !errors.Is(err, ops.ErrRefused) {
			t.Errorf("error = %v: when they are up again, none would take flows", err)
		}
		stop()
	})
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, shop)
		must(t, c, "drain web/web01 10m", "drain shop/s1 20m")
		w.done()
		time.Sleep(10*time.Minute - time.Second)
		w.expect()
		time.Sleep(time.Second)
		w.expect("apply web: web02=2 shop: s1=1~ s9=9*5")
		w.expectLog("WARN", "the deadline of the drain of web/web01 has passed: it is taken out until it is enabled")
		wantOperations(t, c, "web/web01 drain=true by kim deadline out", "shop/s1 drain=true by kim deadline",
			"undo drain shop/s1", "undo drain web/web01")
		status, err := c.Status()
		if err != nil {
			t.Fatal(err)
		}
		if web01, s1 := status.Services[0].Backends[0], status.Services[1].Backends[0]; web01.State != lb.Out ||
			s1.State != lb.Draining || s1.Drain.By != "kim" {
			t.Errorf("states %s and %s, want out and draining", web01.State, s1.State)
		}
		if _, err := do(t, c, "drain web/web01"); !errors.Is(err, ops.ErrRefused) {
			t.Errorf("error = %v, want a refusal", err)
		}
		must(t, c, "enable web/web01") // before the other's deadline, which stays
		w.expect("apply web: web01=1 web02=2 shop: s1=1~ s9=9*5")
		time.Sleep(10 * time.Minute)
		w.expect("apply web: web01=1 web02=2 shop: s9=9*5")
		must(t, c, "undo") // the drain of web01, whose deadline is over
		w.expect("apply web: web02=2 shop: s9=9*5")
		must(t, c, "undo", "undo")
		w.expect("apply web: web02=2 shop: s1=1 s9=9*5", "apply web: web01=1 web02=2 shop: s1=1 s9=9*5")
		time.Sleep(time.Hour)
		w.expect()
		stop()
	})
}

// TestDisable: a backend is out at once, drained before or not, and comes back when it is enabled, or by
// undo as it was.
func TestDisable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, "")
		must(t, c, "disable web/web01")
		w.expect("apply web: web02=2")
		wantOperations(t, c, "web/web01 drain=true by kim out", "undo disable web/web01")
		if status, err := c.Status(); err != nil || status.Services[0].Backends[0].State != lb.Out {
			t.Errorf("status %+v, error %v", status, err)
		}
		for _, order := range []string{"disable web/web01", "drain web/web01", "disable web/web02"} {
			if _, err := do(t, c, order); !errors.Is(err, ops.ErrRefused) {
				t.Errorf("%s: error = %v, want a refusal", order, err)
			}
		}
		must(t, c, "enable web/web01", "drain web/web01 10m", "disable web/web01")
		w.expect("apply web: web01=1 web02=2", "apply web: web01=1~ web02=2", "apply web: web02=2")
		must(t, c, "undo")
		w.expect("apply web: web01=1~ web02=2")
		time.Sleep(10 * time.Minute) // the deadline of before holds again
		w.expect("apply web: web02=2")
		stop()
	})
}

// TestDeadlineMoves: the last word counts.
func TestDeadlineMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, "")
		must(t, c, "drain web/web01 10m", "drain web/web01 1h", "drain web/web01 30m")
		w.done()
		time.Sleep(30*time.Minute - time.Second)
		w.expect()
		must(t, c, "drain web/web01") // no deadline at all
		time.Sleep(time.Hour)
		w.expect("apply web: web01=1~ web02=2")
		stop()
	})
}

// TestDeadlineIsTriedAgain: a data plane that refuses is asked again.
func TestDeadlineIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, "")
		must(t, c, "drain web/web01 10m")
		w.done()
		w.failApply(errors.New("no memory"))
		time.Sleep(10 * time.Minute)
		w.expect("fail to apply web: web02=2")
		w.expectLog("ERROR", "take drained backends out of their services, whose deadline has passed: no memory")
		w.failApply(nil)
		time.Sleep(retryFirst + settleDelay)
		w.expect("apply web: web02=2")
		stop()
	})
}

func TestOperationFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, "")
		w.failApply(errors.New("no memory"))
		_, err := do(t, c, "drain web/web01")
		if err == nil ||
			err.Error() != "drain web/web01: the data plane refused the change, and nothing was changed: no memory" {
			t.Errorf("error = %v", err)
		}
		wantOperations(t, c)
		w.failApply(nil)
		w.found("192.0.2.2", 7)
		time.Sleep(settleDelay)
		w.expect("fail to apply web: web01=1~ web02=2", "apply web: web01=1 web02=7")
		stop()
		if _, err := do(t, c, "drain web/web01"); !errors.Is(err, ops.ErrStopping) {
			t.Errorf("error = %v, want ErrStopping", err)
		}
	})
}

// TestOperationsOfTheConfiguration: a backend that the file drains can be enabled.
func TestOperationsOfTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, strings.ReplaceAll(shop, "weight: 5", "drain: true"))
		if _, err := do(t, c, "drain shop/s9"); !errors.Is(err, ops.ErrRefused) ||
			!strings.Contains(err.Error(), "by the configuration") {
			t.Errorf("error = %v", err)
		}
		must(t, c, "enable shop/s9")
		w.expect("apply web: web01=1 web02=2 shop: s1=1 s9=9")
		wantOperations(t, c, "shop/s9 drain=false by kim", "undo enable shop/s9")
		must(t, c, "drain shop/s9")
		w.expect("apply web: web01=1 web02=2 shop: s1=1 s9=9~")
		wantOperations(t, c, "shop/s9 drain=true by kim", "undo drain shop/s9", "undo enable shop/s9")
		must(t, c, "drain shop/s9 1m")
		time.Sleep(time.Minute)
		w.expect("apply web: web01=1 web02=2 shop: s1=1 s9=9~", "apply web: web01=1 web02=2 shop: s1=1")
		must(t, c, "enable shop/s9")
		w.expect("apply web: web01=1 web02=2 shop: s1=1 s9=9")
		stop()
	})
}

func TestUndoIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, stop := allUp(t, "")
		for i := range maxHistory + 5 {
			must(t, c, fmt.Sprintf("weight web/web01 %d", i+10))
		}
		for range maxHistory {
			must(t, c, "undo")
		}
		if _, err := do(t, c, "undo"); !errors.Is(err, ops.ErrRefused) {
			t.Errorf("error = %v, want a refusal", err)
		}
		wantOperations(t, c, "web/web01 weight=14 by kim")
		stop()
	})
}

// TestPathsOfOverlaidServices: new paths reach services of which a backend is taken out.
func TestPathsOfOverlaidServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, shop)
		must(t, c, "drain web/web01 1m")
		time.Sleep(time.Minute)
		synctest.Wait()
		w.done()
		w.found("192.0.2.2", 7)
		w.found("192.0.2.1", 8)
		time.Sleep(settleDelay)
		w.expect("apply web: web02=7 shop: s1=8 s9=9*5")
		must(t, c, "undo")
		w.expect("apply web: web01=8 web02=7 shop: s1=8 s9=9*5")
		stop()
	})
}

func TestOperationsOverReloads(t *testing.T) {
	const base = web + shop
	drained := strings.ReplaceAll(shop, "weight: 5", "weight: 5, drain: true")
	tests := map[string]struct {
		from   string
		before []string
		file   string
		want   string
		in     []string
		log    string
	}{
		"the same": {shop, []string{"drain web/web01", "weight shop/s9 20"}, base,
			"apply web: web01=1~ web02=2 shop: s1=1 s9=9*20",
			[]string{"web/web01 drain=true by kim", "shop/s9 weight=20 by kim", "undo weight shop/s9",
				"undo drain web/web01"}, ""},
		"another name": {shop, []string{"drain web/web01"}, strings.ReplaceAll(base, "web01", "first"),
			"apply web: first=1 web02=2 shop: s1=1 s9=9*5",
			[]string{"undo drain web/web01 lost"},
			"web/web01 is no longer in the configuration, and the operations on it end; its address 192.0.2.1 is web/first's now"},
		"addresses swapped": {shop, []string{"drain web/web01"}, swapped(base, "192.0.2.1}", "192.0.2.2}"),
			"apply web: web01=2~ web02=1 shop: s1=2 s9=9*5",
			[]string{"web/web01 drain=true by kim", "undo drain web/web01"}, ""},
		"names swapped": {shop, []string{"drain web/web01", "weight web/web02 9"}, swapped(base, "web01", "web02"),
			"apply web: web02=1*9 web01=2~ shop: s1=1 s9=9*5",
			[]string{"web/web02 weight=9 by kim", "web/web01 drain=true by kim", "undo weight web/web02",
				"undo drain web/web01"}, ""},
		"another VIP": {shop, []string{"drain web/web01"}, strings.ReplaceAll(base, "192.0.2.100", "192.0.2.102"),
			"apply web: web01=1~ web02=2 shop: s1=1 s9=9*5",
			[]string{"web/web01 drain=true by kim", "undo drain web/web01"}, ""},
		"services swapped": {shop, []string{"drain web/web01", "weight shop/s9 20"},
			swapped(base, "192.0.2.100", "192.0.2.101"), "apply web: web01=1~ web02=2 shop: s1=1 s9=9*20",
			[]string{"web/web01 drain=true by kim", "shop/s9 weight=20 by kim", "undo weight shop/s9",
				"undo drain web/web01"}, ""},
		"weight changed": {shop, []string{"drain shop/s9", "weight shop/s9 20"},
			strings.ReplaceAll(base, "weight: 5", "weight: 7"), "apply web: web01=1 web02=2 shop: s1=1 s9=9~*7",
			[]string{"shop/s9 drain=true by kim", "undo weight shop/s9 lost", "undo drain shop/s9"},
			"the configuration has changed the weight of shop/s9 to 7, and counts; the operation on it ends"},
		"drain changed": {drained, []string{"enable shop/s9", "weight shop/s9 20"}, base,
			"apply web: web01=1 web02=2 shop: s1=1 s9=9*20",
			[]string{"shop/s9 weight=20 by kim", "undo weight shop/s9", "undo enable shop/s9 lost"},
			"the configuration has changed `drain` of shop/s9, and counts"},
		"gone": {shop, []string{"drain shop/s9", "drain web/web01"}, web, "apply web: web01=1~ web02=2",
			[]string{"web/web01 drain=true by kim", "undo drain web/web01", "undo drain shop/s9 lost"},
			"shop/s9 is no longer in the configuration, and the operations on it end"},
		"gone in part": {shop, []string{"drain shop/s1 all"}, web, "apply web: web01=1~ web02=2",
			[]string{"web/web01 drain=true by kim", "undo drain web/web01 shop/s1"},
			"shop/s1 is no longer in the configuration"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c, stop := allUp(t, test.from)
				must(t, c, test.before...)
				w.done()
				w.mustReload(c, test.file)
				if did := strings.Join(w.done(), "\n"); !strings.Contains(did+"\n", test.want+"\n") {
					t.Errorf("done:\n%s\nwant in it: %s", did, test.want)
				}
				wantOperations(t, c, test.in...)
				if test.log != "" {
					w.expectLog("WARN", test.log)
				}
				stop()
			})
		})
	}
}

// TestUndoOfWhatIsLost is refused once, and then the one before is next.
func TestUndoOfWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, shop)
		must(t, c, "drain web/web01", "drain shop/s9")
		w.mustReload(c, web)
		_, err := do(t, c, "undo")
		want := "drain shop/s9 cannot be undone: the reload of " + time.Now().Format(time.DateTime) +
			" took the backend out of the configuration; another undo undoes drain web/web01"
		if !errors.Is(err, ops.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %q", err, want)
		}
		w.quiet()
		must(t, c, "undo")
		w.expect("apply web: web01=1 web02=2")
		stop()
	})
}

// TestReloadThatLeavesOnlyDrained is refused, whole.
func TestReloadThatLeavesOnlyDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, "")
		must(t, c, "drain web/web01")
		w.done()
		err := finished(t, w.reload(c, strings.ReplaceAll(web, "      - {name: web02, address: 192.0.2.2}\n", "")))
		want := "f:7: services[0].backends: with the operations in force, no backend would take new flows (then: web01 drained); enable one (`jeoul backend list`), or keep another"
		if err == nil || err.Error() != want {
			t.Errorf("error = %v, want %q", err, want)
		}
		w.expect(started[0], started[0])
		wantOperations(t, c, "web/web01 drain=true by kim", "undo drain web/web01")
		stop()
	})
}

// TestOperationWhileReloading: it is for the configuration of now, and is carried
// over.
func TestOperationWhileReloading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, "")
		result := w.reload(c, web+dns) // waits for dns01
		synctest.Wait()
		must(t, c, "drain web/web01")
		w.found("2001:db8::1", 4)
		time.Sleep(settleDelay)
		if err := finished(t, result); err != nil {
			t.Fatal(err)
		}
		w.expect("watch 192.0.2.1 192.0.2.2 2001:db8::1", "apply web: web01=1~ web02=2", "add 2001:db8::53",
			"apply web: web01=1~ web02=2 dns: dns01=4", "watch 192.0.2.1 192.0.2.2 2001:db8::1",
			"announce 192.0.2.100 on eth9", "announce 2001:db8::53 on eth9")
		wantOperations(t, c, "web/web01 drain=true by kim", "undo drain web/web01")
		stop()
	})
}

func TestOperationGivenUp(t *testing.T) {
	w := newWorld(t)
	c := w.controller(web)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Operate(ctx, ops.Order{Verb: ops.Undo}); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want context.Canceled: the controller does not run", err)
	}
}

// TestUnchangedSlicesAreShared: the data plane compares by them.
func TestUnchangedSlicesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, shop+dns)
		steps := map[string]struct {
			do func()
			// backends and paths say which services got new slices.
			backends, paths string
		}{
			"drain":  {func() { must(t, c, "drain web/web01") }, "web", ""},
			"weight": {func() { must(t, c, "weight shop/s9 9") }, "shop", ""},
			"path": {func() {
				w.found("192.0.2.9", 10)
				time.Sleep(settleDelay)
			}, "", "shop"},
			"reload": {func() {
				w.mustReload(c, web+strings.ReplaceAll(shop, "s9, address: 192.0.2.9", "s9, address: 192.0.2.3")+dns)
			}, "shop", "shop"},
		}
		for _, name := range []string{"drain", "weight", "path", "reload"} {
			before := w.state
			steps[name].do()
			synctest.Wait()
			var backends, paths []string
			for i, s := range w.state.Services {
				if &s.Backends[0] != &before.Services[i].Backends[0] {
					backends = append(backends, s.Name)
				}
				if &s.Paths[0] != &before.Services[i].Paths[0] {
					paths = append(paths, s.Name)
				}
			}
			if got, want := strings.Join(backends, " "), steps[name].backends; got != want {
				t.Errorf("%s: new backends for %q, want %q", name, got, want)
			}
			if got, want := strings.Join(paths, " "), steps[name].paths; got != want {
				t.Errorf("%s: new paths for %q, want %q", name, got, want)
			}
		}
		stop()
	})
}
