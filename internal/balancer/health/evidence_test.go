// SPDX-License-Identifier: Apache-2.0

package health

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// late makes the process late by that much, as a suspended process or a busy CPU does: the pulse is
// felt no earlier.
func (e *Engine) late(by time.Duration) { e.stallMonitor.late.Add(int64(by)) }

// lateChecker is late itself while it waits without success, or is answered.
type lateChecker struct {
	*fake
	engine *Engine
	by     time.Duration
}

func (l *lateChecker) Check(ctx context.Context, e Endpoint, c *lb.Check, report func(Step)) Answer {
	l.engine.late(l.by)
	return l.fake.Check(ctx, e, c, report)
}

// TestLateIsNoEvidence: a check that waited without success while the process was late by more than a quarter of the
// timeout shows nothing, and the next one waits longer; an answer shows something, however late.
func TestLateIsNoEvidence(t *testing.T) {
	silence := Silence(500 * time.Millisecond)
	for _, c := range []struct {
		name   string
		answer Answer
		by     time.Duration
		state  State
		text   string
	}{
		{"silence", silence, 0, Failing, "no answer"},
		{"silence, a little late", silence, 125 * time.Millisecond, Failing, "no answer"},
		{"silence, late", silence, 126 * time.Millisecond, Failing, "no answer"},
		{"silence, starved", silence, 2 * time.Second, Unknown, "this host was busy"},
		{"refused, late", refused, time.Second, Failing, "connection refused"},
		{"passed, late", Pass("connected"), time.Second, Healthy, "connected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lateChecker{fake: newFake(), by: c.by}
				l.says(backend(1), c.answer)
				e := runWith(t, l, slog.New(slog.DiscardHandler))
				l.engine = e
				w := backendOf(80, 1, everySecond())
				e.SetTargets([]Wanted{w})
				time.Sleep(5 * time.Second)
				synctest.Wait()
				v, _ := e.Verdict(w.Backend)
				if v.State != c.state || v.Checks[0].Answer != c.text {
					t.Errorf("%+v, expected %s and %q", v, c.state, c.text)
				}
			})
		})
	}
}

// hung answers no check, and has the process late for a share of the time that each waits.
type hung struct {
	engine *Engine
	share  []float64 // of one check after the other, again and again
	waited []time.Duration
}

func (h *hung) Check(ctx context.Context, _ Endpoint, c *lb.Check, _ func(Step)) Answer {
	began := time.Now()
	<-ctx.Done()
	waited := time.Since(began)
	h.engine.late(time.Duration(h.share[len(h.waited)%len(h.share)] * float64(waited)))
	h.waited = append(h.waited, waited)
	return Silence(c.Timeout)
}

// TestHangIsFoundByLateProcess: a backend that hangs is found by a process that is late all the time, too: within two
// intervals and fall checks of at most four timeouts each, with one more for each time that it is later than ever. One
// that is hardly ever on time finds nothing, and never waits longer than that.
func TestHangIsFoundByLateProcess(t *testing.T) {
	for _, c := range []struct {
		share []float64
		// longest is how long the last checks wait, in timeouts; found, of how many checks the verdict is; 0: there is
		// none.
		longest float64
		found   int
	}{
		{[]float64{0}, 1, 3}, {[]float64{0.25}, 1, 3}, {[]float64{0.3}, 1 / 0.7, 4}, {[]float64{0.5}, 2, 4},
		{[]float64{0.75}, 4, 4}, {[]float64{0.8}, 4, 4},
		{[]float64{0.5, 0}, 2, 4}, {[]float64{0, 0.5, 0.7}, 1 / 0.3, 5}, {[]float64{0.82}, 4, 0}, {[]float64{1}, 4, 0},
		{[]float64{3}, 4, 0},
	} {
		t.Run(fmt.Sprint(c.share), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hung{share: c.share}
				e := runWith(t, h, slog.New(slog.DiscardHandler))
				h.engine = e
				check := everySecond()
				w := backendOf(80, 1, check)
				e.SetTargets([]Wanted{w})
				bound := 2*check.Interval + time.Duration(max(3, c.found-1))*4*check.Timeout
				time.Sleep(bound)
				synctest.Wait()
				v, _ := e.Verdict(w.Backend)
				if (v.State == Failing) != (c.found > 0) {
					t.Errorf("after %v: %+v", bound, v)
				}
				if c.found > 0 && len(h.waited) < c.found {
					t.Errorf("found by %d checks, expected %d", len(h.waited), c.found)
				}
				time.Sleep(10 * bound)
				synctest.Wait()
				longest := h.waited[len(h.waited)-1]
				if want := time.Duration(c.longest * float64(check.Timeout)); longest < want-time.Millisecond ||
					longest > want+time.Millisecond {
					t.Errorf("waited for %v, expected %v: %v", longest, want, h.waited)
				}
				if v, _ := e.Verdict(w.Backend); (v.State == Failing) != (c.found > 0) {
					t.Errorf("after %v: %+v", 11*bound, v)
				}
			})
		})
	}
}

// TestDrainConnEnds: a longer wait ends with the first answer: the process' lateness of then says nothing of now.
func TestDrainConnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hung{share: []float64{0.5}}
		e := runWith(t, h, slog.New(slog.DiscardHandler))
		h.engine = e
		w := backendOf(80, 1, everySecond())
		e.SetTargets([]Wanted{w})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		target := e.watches[w.Backend].targets[0]
		if target.extra == 0 {
			t.Fatal("nothing is waited longer")
		}
		e.mu.Lock()
		e.recordAnswer(target, Pass("connected"), e.now())
		e.mu.Unlock()
		if target.extra != 0 {
			t.Errorf("after an answer, %v more are waited", target.extra)
		}
	})
}

// TestStallMonitor: the monitor counts beats that come late, the one that has not come yet, and not the usual lateness
// of timers.
func TestStallMonitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &stallMonitor{start: time.Now()}
		for _, c := range []struct {
			after, late time.Duration
			beats       bool
		}{
			{beat, 0, true}, {beat + slack, 0, true}, {beat + slack + time.Millisecond, time.Millisecond, true},
			{time.Minute, time.Minute - beat - slack + time.Millisecond, false},
			{0, time.Minute - beat - slack + time.Millisecond, true},
			{beat, time.Minute - beat - slack + time.Millisecond, true},
		} {
			time.Sleep(c.after)
			if c.beats {
				p.sample(time.Since(p.start))
			}
			if got := p.lateness(); got != c.late {
				t.Errorf("after %v more: late by %v, expected %v", c.after, got, c.late)
			}
		}
	})
}

// TestOwnTroubleIsNoEvidence: this host's own trouble leaves every verdict as it is, and is logged once.
func TestOwnTroubleIsNoEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := newFake()
		e := runWith(t, f, slog.New(slog.NewTextHandler(&log, nil)))
		var wanted []Wanted
		for i := range 100 {
			wanted = append(wanted, backendOf(80, i, everySecond()))
			if i%2 == 1 {
				f.says(backend(i), refused)
			}
		}
		e.SetTargets(wanted)
		time.Sleep(4 * time.Second)
		for i := range 100 {
			f.says(backend(i),
				Trouble("too many open files", fmt.Sprintf("is not asked: socket %d: too many open files", i)))
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for i, w := range wanted {
			v, _ := e.Verdict(w.Backend)
			if state := []State{Healthy, Failing}[i%2]; v.State != state ||
				v.Checks[0].Answer != "too many open files" {
				t.Errorf("%+v, expected %s", v, state)
			}
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines of log, expected 1:\n%s", n, log.String())
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines of log after half an hour of trouble, expected 1", n)
		}
	})
}

// TestPassingTrouble: a trouble that each start brings is not logged, and a trouble of the same kind that follows it
// is.
func TestPassingTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := newFake()
		e := runWith(t, f, slog.New(slog.NewTextHandler(&log, nil)))
		brief := Trouble("no way", "is not asked: the programs are being loaded")
		brief.Passing = true
		f.says(backend(1), brief)
		w := backendOf(80, 1, everySecond())
		e.SetTargets([]Wanted{w})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if v, _ := e.Verdict(w.Backend); v.State != Unknown || log.Len() > 0 {
			t.Errorf("%+v, log %q", v, log.String())
		}
		f.says(backend(1), Trouble("no way", "is not asked: there is no route"))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := strings.Count(log.String(), "there is no route"); n != 1 {
			t.Errorf("%d lines of log, expected 1:\n%s", n, log.String())
		}
	})
}

// TestOffline: a failed check is no evidence while this host reaches no backend, nor one that began or ended meanwhile;
// a passed one is.
func TestOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.takes = 400 * time.Millisecond
		e := run(t, f)
		w, well := backendOf(80, 1, everySecond()), backendOf(80, 2, everySecond())
		e.SetTargets([]Wanted{w, well})
		time.Sleep(5 * time.Second)
		expect(t, e, w, Healthy, "")
		e.SetOffline("interface eth9 is down")
		f.says(backend(1), refused)
		time.Sleep(time.Minute)
		expect(t, e, w, Healthy, "")
		if v, _ := e.Verdict(well.Backend); v.State != Healthy || v.Checks[0].Passed < 60 {
			t.Errorf("of one that goes on to answer: %+v", v)
		}
		if v, _ := e.Verdict(w.Backend); v.Checks[0].Answer != "interface eth9 is down" || v.Checks[0].Failed != 0 {
			t.Errorf("of one that cannot be reached: %+v", v)
		}
		e.SetOffline("")
		time.Sleep(4 * time.Second)
		expect(t, e, w, Failing, "refuses connections")
	})
}

// TestSettling: after the return of a link, silence and unreachable hosts are no evidence until the network has
// settled, and an answer is at once.
func TestSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		e := run(t, f)
		silent, unreachable, refusing := backendOf(80, 1, everySecond()), backendOf(80, 2, everySecond()),
			backendOf(80, 3, everySecond())
		e.SetTargets([]Wanted{silent, unreachable, refusing})
		time.Sleep(5 * time.Second)
		e.SetOffline("interface eth9 is down")
		f.says(backend(1), Silence(time.Second))
		f.says(backend(2), Unreachable("host unreachable", "cannot be reached"))
		f.says(backend(3), refused)
		time.Sleep(10 * time.Second)
		e.SetOffline("")
		time.Sleep(settleTime - time.Second)
		expect(t, e, silent, Healthy, "")
		expect(t, e, unreachable, Healthy, "")
		expect(t, e, refusing, Failing, "refuses connections")
		v, _ := e.Verdict(silent.Backend)
		if v.Checks[0].Failed != 0 || v.Checks[0].Answer != "interface eth9 is down" {
			t.Errorf("of one that is silent while the network settles: %+v", v)
		}
		time.Sleep(6 * time.Second)
		expect(t, e, silent, Failing, "does not answer within 1s")
		expect(t, e, unreachable, Failing, "cannot be reached")
	})
}

// TestOfflineMeanwhile: of a check during which this host is cut off, or reaches its backends again,
// a failure is no evidence.
func TestOfflineMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.takes = 400 * time.Millisecond
		f.says(backend(1), refused)
		e := run(t, f)
		w := backendOf(80, 1, everySecond())
		e.SetTargets([]Wanted{w})
		asked := func() int {
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.now
		}
		for _, why := range []string{"interface eth9 is down", "", "interface eth9 is down", ""} {
			for asked() == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			e.SetOffline(why)
			for asked() > 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		if v, _ := e.Verdict(w.Backend); v.Checks[0].Failed != 0 {
			t.Errorf("%+v", v)
		}
	})
}

// TestSuspended: a suspended process does not start at once whatever was due meanwhile.
func TestSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const targets = 2000
		f := newFake()
		e := New(Options{Checker: f, Log: slog.New(slog.DiscardHandler)})
		e.ctx = t.Context()
		// runs stands for Run, which a test cannot suspend.
		runs := func(lasts time.Duration) {
			for end := e.now() + lasts; e.now() < end; {
				e.mu.Lock()
				pause := e.dispatch(e.now())
				e.mu.Unlock()
				time.Sleep(min(pause, granule))
			}
			synctest.Wait()
		}
		var wanted []Wanted
		for i := range targets {
			wanted = append(wanted, backendOf(80, i, everySecond()))
		}
		e.SetTargets(wanted)
		runs(3 * time.Second)
		for _, asleep := range []time.Duration{400 * time.Millisecond, time.Minute} {
			time.Sleep(asleep)
			f.mu.Lock()
			f.all = nil
			f.mu.Unlock()
			runs(2 * time.Second)
			windows := map[time.Duration]int{}
			f.mu.Lock()
			for _, at := range f.all {
				windows[at/(50*time.Millisecond)]++
			}
			f.mu.Unlock()
			for at, n := range windows {
				if mean := targets / 20; n > 2*mean+int(max(16, targets/50)) {
					t.Errorf("after %v: %d checks began in the 50 ms at %v: the mean is %d", asleep, n,
						at*50*time.Millisecond, mean)
				}
			}
		}
	})
}

// TestFast: while an answer is in doubt it is asked for faster, and then at its own times again.
func TestFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		e := run(t, f)
		check := everySecond()
		check.Interval, check.Fast = 10*time.Second, time.Second
		w := backendOf(80, 1, check)
		e.SetTargets([]Wanted{w})
		time.Sleep(30 * time.Second)
		expect(t, e, w, Healthy, "")
		first := f.asked[backend(1)][0]
		f.says(backend(1), refused)
		time.Sleep(first + 2*time.Second + time.Millisecond) // the next check, and two fast ones
		expect(t, e, w, Failing, "refuses connections")
		f.mu.Lock()
		f.asked[backend(1)] = nil
		f.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, at := range f.asked[backend(1)] {
			if at%check.Interval != first {
				t.Errorf("asked at %v, expected %v after each full %v", at, first, check.Interval)
			}
		}
		if n := len(f.asked[backend(1)]); n != 6 && n != 5 {
			t.Errorf("asked %d times in a minute", n)
		}
	})
}

// TestDelayAndJitter: delay keeps a new backend from being asked, and jitter moves checks by no more than its share.
func TestDelayAndJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		e := run(t, f)
		check := everySecond()
		check.Delay, check.Jitter = 30*time.Second, 20
		w := backendOf(80, 1, check)
		e.SetTargets([]Wanted{w})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		asked := f.asked[backend(1)]
		if len(asked) < 88 || asked[0] < check.Delay || asked[0] > check.Delay+check.Interval*12/10 {
			t.Fatalf("%d checks, the first at %v", len(asked), asked[0])
		}
		phase, varied := asked[0]%check.Interval, false
		for _, at := range asked {
			off := (at - phase + check.Interval) % check.Interval
			if off > 200*time.Millisecond && off < 800*time.Millisecond {
				t.Errorf("asked at %v, which is %v off", at, off)
			}
			varied = varied || off != 0
		}
		if !varied {
			t.Error("all checks began at the same time of their interval")
		}
	})
}

// TestRunning: no more checks run than may, and those that wait are made when others end, each in its turn. It is
// logged.
func TestRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := newFake()
		f.takes = 100 * time.Millisecond
		e := runOptions(t, Options{Checker: f, Log: slog.New(slog.NewTextHandler(&log, nil)), Running: 3})
		var wanted []Wanted
		for i := range 100 {
			wanted = append(wanted, backendOf(80, i, everySecond()))
		}
		e.SetTargets(wanted)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if f.most != 3 {
			t.Errorf("%d checks ran at a time, expected 3", f.most)
		}
		if n := len(f.all); n < 550 || n > 600 {
			t.Errorf("%d checks in 20 s, expected 30 a second", n)
		}
		for i := range 100 {
			if n := len(f.asked[backend(i)]); n < 5 || n > 7 {
				t.Errorf("backend %d was asked %d times of %d", i, n, len(f.all))
			}
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "as many run as may") {
			t.Errorf("the log is %q", got)
		}
	})
}

// TestAgentsWord: an agent's word holds at once, and values that it leaves out stay.
func TestAgentsWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		e := run(t, f)
		w := backendOf(80, 1, everySecond())
		e.SetTargets([]Wanted{w})
		for _, c := range []struct {
			answer Answer
			state  State
			weight uint16
			drain  bool
		}{
			{Answer{Outcome: Passed, Final: true}, Healthy, 100, false},
			{Answer{Outcome: Passed, Final: true, Weighs: true, Weight: 50}, Healthy, 50, false},
			{Answer{Outcome: Passed, Final: true, Drains: true, Drain: true}, Healthy, 50, true},
			{Answer{Outcome: Failed, Final: true, Reason: "says that it is down"}, Failing, 50, true},
			{Answer{Outcome: Passed, Final: true, Weighs: true, Weight: 200, Drains: true}, Healthy, 200, false},
		} {
			f.says(backend(1), c.answer)
			select {
			case <-e.Changes():
			default:
			}
			time.Sleep(time.Second)
			synctest.Wait()
			v, _ := e.Verdict(w.Backend)
			if v.State != c.state || v.Weight != c.weight || v.Drain != c.drain {
				t.Errorf("after %+v: %+v", c.answer, v)
			}
			if _, ok := e.Changed()[w.Backend]; !ok {
				t.Errorf("after %+v: no change", c.answer)
			}
			select {
			case <-e.Changes():
			default:
				t.Errorf("after %+v: no signal", c.answer)
			}
		}
	})
}

// boundChecker records how long the contexts of checks last.
type boundChecker struct{ bounds chan time.Duration }

func (b boundChecker) Check(ctx context.Context, _ Endpoint, _ *lb.Check, _ func(Step)) Answer {
	deadline, _ := ctx.Deadline()
	b.bounds <- time.Until(deadline)
	return Pass("")
}

// TestProgramsHaveTheirWholeTime: the context of a program's check also lasts for its wait for a slot, in a check on
// request, too.
func TestProgramsHaveTheirWholeTime(t *testing.T) {
	for kind, share := range map[lb.CheckType]time.Duration{lb.CheckTCP: 1, lb.CheckExec: 2} {
		synctest.Test(t, func(t *testing.T) {
			b := boundChecker{make(chan time.Duration, 10)}
			e := runWith(t, b, slog.New(slog.DiscardHandler))
			check := everySecond()
			check.Type = kind
			w := backendOf(80, 1, check)
			expect := func(who string) {
				t.Helper()
				if got := <-b.bounds; got != share*check.Timeout {
					t.Errorf("%s: a check of type %s has %v, want %v", who, kind, got, share*check.Timeout)
				}
			}
			e.SetTargets([]Wanted{w})
			expect("the schedule")
			if _, err := e.CheckNow(t.Context(), w, nil); err != nil {
				t.Error(err)
			}
			expect("an operator")
		})
	}
}
