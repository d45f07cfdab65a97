// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// fake is a checker whose answers a test says, and that notes when it was asked.
type fake struct {
	mu     sync.Mutex
	start  time.Time
	answer map[netip.Addr]Answer // none: passes
	takes  time.Duration
	asked  map[netip.Addr][]time.Duration
	all    []time.Duration
	now    int
	most   int
}

func newFake() *fake {
	return &fake{start: time.Now(), answer: map[netip.Addr]Answer{}, asked: map[netip.Addr][]time.Duration{}}
}

func (f *fake) Check(ctx context.Context, e Endpoint, check *lb.Check, report func(Step)) Answer {
	f.mu.Lock()
	at := time.Since(f.start)
	f.asked[e.Address] = append(f.asked[e.Address], at)
	f.all = append(f.all, at)
	f.now++
	f.most = max(f.most, f.now)
	takes := f.takes
	f.mu.Unlock()
	if report != nil {
		report(Step{Name: "connect"})
	}
	if takes > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(takes):
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
	if answer, ok := f.answer[e.Address]; ok {
		return answer
	}
	return Pass("connected")
}

func (f *fake) says(address netip.Addr, answer Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer[address] = answer
}

var refused = Fail("connection refused", "refuses connections")

func backend(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// backendOf returns the wanted checks of backend i of the service with that port.
func backendOf(port uint16, i int, checks ...lb.Check) Wanted {
	service := lb.ServiceKey{VIP: netip.MustParseAddr("192.0.2.1"), Port: port, Protocol: lb.TCP}
	return Wanted{Backend: lb.BackendKey{Service: service, Address: backend(i), Port: 80}, Checks: checks, Mode: lb.NAT}
}

func everySecond() lb.Check {
	return lb.Check{Type: lb.CheckTCP, Via: lb.ViaAddress, Interval: time.Second, Timeout: 500 * time.Millisecond,
		Rise: 2, Fall: 3}
}

// run runs an engine for a test inside a synctest bubble.
func run(t *testing.T, f *fake) *Engine {
	t.Helper()
	return runWith(t, f, slog.New(slog.DiscardHandler))
}

func runWith(t *testing.T, c Checker, log *slog.Logger) *Engine {
	t.Helper()
	return runOptions(t, Options{Checker: c, Log: log, Running: 10_000})
}

func runOptions(t *testing.T, opt Options) *Engine {
	t.Helper()
	e := New(opt)
	begin(t, e)
	return e
}

// begin runs an engine until the test ends.
func begin(t *testing.T, e *Engine) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		e.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// expect fails unless the backend's state is that one.
func expect(t *testing.T, e *Engine, wanted Wanted, state State, reason string) {
	t.Helper()
	synctest.Wait()
	v, ok := e.Verdict(wanted.Backend)
	if !ok || v.State != state || v.Reason != reason {
		t.Errorf("%s: verdict %q, reason %q (watched: %t), expected %q, %q", wanted.Backend.Address, v.State, v.Reason,
			ok, state, reason)
	}
}

func TestRisesAndFalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		e := run(t, f)
		w := backendOf(80, 1, everySecond())
		e.SetTargets([]Wanted{w})
		expect(t, e, w, Unknown, "")
		time.Sleep(time.Second)
		expect(t, e, w, Unknown, "")
		time.Sleep(time.Second)
		expect(t, e, w, Healthy, "")
		f.says(backend(1), refused)
		time.Sleep(2 * time.Second)
		expect(t, e, w, Healthy, "refuses connections")
		time.Sleep(time.Second)
		expect(t, e, w, Failing, "refuses connections")
		f.says(backend(1), Pass("connected"))
		time.Sleep(time.Second)
		expect(t, e, w, Failing, "refuses connections")
		time.Sleep(time.Second)
		expect(t, e, w, Healthy, "")
	})
}

// TestOneCheckOfAnEndpoint: a check of an endpoint is one, however many services have it; by the VIP, it is one for
// each VIP and mode.
func TestOneCheckOfAnEndpoint(t *testing.T) {
	byVIP := everySecond()
	byVIP.Via, byVIP.Port = lb.ViaVIP, 8080
	for _, c := range []struct {
		name  string
		check lb.Check
		modes []lb.Mode
		want  int
	}{
		{"by its address", everySecond(), []lb.Mode{lb.NAT, lb.NAT, lb.L2DSR}, 1},
		{"by the VIP", byVIP, []lb.Mode{lb.L2DSR, lb.L2DSR, lb.IPIP}, 2},
		{"by the VIP in a mode that is not set", byVIP, []lb.Mode{"", "", ""}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				e := run(t, f)
				var wanted []Wanted
				for i, mode := range c.modes {
					w := backendOf(uint16(80+i), 1, c.check)
					w.Mode = mode
					wanted = append(wanted, w)
				}
				e.SetTargets(wanted)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if len(f.all) != 10*c.want {
					t.Errorf("%d checks in 10 s, expected %d", len(f.all), 10*c.want)
				}
				for _, w := range wanted {
					expect(t, e, w, Healthy, "")
				}
			})
		})
	}
}

// TestSpread: starts are spread from the first second on, whether all pass, fail or hang.
func TestSpread(t *testing.T) {
	const targets = 2000
	for _, c := range []struct {
		name   string
		answer Answer
		takes  time.Duration
	}{
		{"all pass", Pass("connected"), 0},
		{"all fail", refused, 0},
		{"all hang", Silence(500 * time.Millisecond), time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.takes = c.takes
				e := run(t, f)
				var wanted []Wanted
				for i := range targets {
					wanted = append(wanted, backendOf(80, i, everySecond()))
					f.answer[backend(i)] = c.answer
				}
				e.SetTargets(wanted)
				const seconds = 5
				time.Sleep(seconds * time.Second)
				synctest.Wait()
				if len(f.all) < (seconds-1)*targets || len(f.all) > seconds*targets {
					t.Errorf("%d checks in %d s of %d endpoints", len(f.all), seconds, targets)
				}
				const window = 50 * time.Millisecond
				windows := make([]int, seconds*time.Second/window+1)
				for _, at := range f.all {
					windows[at/window]++
				}
				for i, n := range windows {
					if mean := targets * int(window) / int(time.Second); n > 2*mean {
						t.Errorf("%d checks began at %v..%v: the mean is %d", n, time.Duration(i)*window,
							time.Duration(i+1)*window, mean)
					}
				}
			})
		})
	}
}

// TestWatchKeepsVerdicts: a change of the configuration costs no verdict that it does not concern.
func TestWatchKeepsVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		e := run(t, f)
		up, down := backendOf(80, 1, everySecond()), backendOf(80, 2, everySecond())
		f.says(backend(2), refused)
		e.SetTargets([]Wanted{up, down})
		time.Sleep(3 * time.Second)
		expect(t, e, down, Failing, "refuses connections")
		e.Changed()
		e.SetTargets([]Wanted{down, up})
		expect(t, e, up, Healthy, "")
		expect(t, e, down, Failing, "refuses connections")
		if changed := e.Changed(); len(changed) > 0 {
			t.Errorf("the same again changed %v", changed)
		}
		slower := everySecond()
		slower.Interval = time.Minute
		down.Checks = []lb.Check{slower}
		e.SetTargets([]Wanted{down, up})
		expect(t, e, down, Failing, "refuses connections")
		// Another service has the same endpoint: its verdict is known at once.
		other := backendOf(81, 2, slower)
		e.SetTargets([]Wanted{down, up, other})
		expect(t, e, other, Failing, "refuses connections")
		// Another question has no answer yet, and overturns nothing until it has enough of them.
		down.Checks = []lb.Check{everySecond()}
		down.Checks[0].Port = 81
		e.Changed()
		e.SetTargets([]Wanted{down})
		expect(t, e, down, Failing, "refuses connections")
		if changed := e.Changed(); len(changed) > 0 {
			t.Errorf("another question changed %v", changed)
		}
		f.says(backend(2), Pass("connected"))
		time.Sleep(time.Second)
		expect(t, e, down, Failing, "refuses connections")
		time.Sleep(time.Second)
		expect(t, e, down, Healthy, "")
		down.Checks = []lb.Check{everySecond()}
		down.Checks[0].Port = 82
		e.SetTargets([]Wanted{down})
		expect(t, e, down, Healthy, "")
		f.says(backend(2), refused)
		time.Sleep(3 * time.Second)
		expect(t, e, down, Failing, "refuses connections")
		if _, ok := e.Verdict(up.Backend); ok {
			t.Errorf("%v is still watched", up.Backend)
		}
	})
}

// TestRefusedRemoval: a reload that only removes backends and is refused costs no verdict, and what has gone for good
// is forgotten.
func TestRefusedRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		e := run(t, f)
		up, down := backendOf(80, 1, everySecond()), backendOf(80, 2, everySecond())
		f.says(backend(2), refused)
		e.SetTargets([]Wanted{up, down})
		time.Sleep(3 * time.Second)
		expect(t, e, down, Failing, "refuses connections")
		e.SetTargets([]Wanted{up})
		e.SetTargets([]Wanted{up, down})
		expect(t, e, down, Failing, "refuses connections")
		e.UpdateTargets(nil, []lb.BackendKey{up.Backend, down.Backend})
		e.SetTargets([]Wanted{up, down})
		expect(t, e, up, Healthy, "")
		expect(t, e, down, Failing, "refuses connections")
		for i := range 10 { // backends that come and go
			e.SetTargets([]Wanted{up, backendOf(80, 3+i, everySecond())})
			time.Sleep(3 * time.Second)
		}
		if n := len(e.previous) + len(e.dropped); n > 1 {
			t.Errorf("the states of %d former backends are kept, expected that of the last change only", n)
		}
		e.SetTargets([]Wanted{up, down})
		expect(t, e, down, Unknown, "")
	})
}

// clocks reads the clocks of a machine that was booted now, in the bubble's time.
func clocks() func() clock.Reading {
	boot := time.Now()
	return func() clock.Reading { return clock.At(time.Now(), "boot", time.Since(boot)) }
}

// TestSaveAndRestore: a verdict goes on over a restart unless it is old, and by how much the wall clock
// was set between the processes does not make it older, or younger.
func TestSaveAndRestore(t *testing.T) {
	for _, set := range []time.Duration{0, 90 * time.Minute, -90 * time.Minute} {
		t.Run(set.String(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { saveAndRestore(t, set) }) })
	}
}

func saveAndRestore(t *testing.T, set time.Duration) {
	f := newFake()
	now := clocks()
	e := New(Options{Checker: f, Log: slog.New(slog.DiscardHandler), Clock: func() clock.Reading {
		r := now()
		r.Wall = r.Wall.Add(-set)
		return r
	}})
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- e.Run(ctx) }()
	w := backendOf(80, 1, everySecond())
	f.says(backend(1), refused)
	e.SetTargets([]Wanted{w})
	time.Sleep(3 * time.Second)
	expect(t, e, w, Failing, "refuses connections")
	before, _ := e.Verdict(w.Backend)
	text := e.Save()
	end()
	<-ended
	for _, c := range []struct {
		later time.Duration
		state State
	}{{10 * time.Minute, Failing}, {2 * time.Hour, Unknown}} {
		time.Sleep(c.later)
		later := New(Options{Checker: f, Log: slog.New(slog.DiscardHandler), Clock: now})
		if err := later.Restore(text, 0); err != nil {
			t.Fatal(err)
		}
		later.SetTargets([]Wanted{w})
		v, _ := later.Verdict(w.Backend)
		if v.State != c.state || c.state == Failing && !v.Since.Equal(before.Since) {
			t.Errorf("after %v: %+v, expected %s since %v", c.later, v, c.state, before.Since)
		}
	}
	for _, bad := range []string{"", "{", `{"version":99}`, `[]`} {
		if err := New(Options{Checker: f}).Restore([]byte(bad), 0); err == nil {
			t.Errorf("Restore(%q): no error", bad)
		}
	}
}

// TestReportedWeightIsKept: a backend's weight is the least that its checks have reported, also over a restart.
func TestReportedWeightIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, now := newFake(), clocks()
		e := New(Options{Checker: f, Log: slog.New(slog.DiscardHandler), Clock: now})
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		w := backendOf(80, 1, everySecond())
		report := func(weight lb.ReportedWeight) {
			answer := Pass("status 200")
			answer.Reports, answer.Reported = true, weight
			f.says(backend(1), answer)
			time.Sleep(2 * time.Second)
		}
		seven := lb.ReportedWeight{Known: true, Value: 7}
		e.SetTargets([]Wanted{w})
		report(seven)
		if v, _ := e.Verdict(w.Backend); v.Reported != seven {
			t.Errorf("reported %+v", v.Reported)
		}
		e.Changed()
		report(lb.ReportedWeight{})
		if v := e.Changed()[w.Backend]; v.Reported.Known {
			t.Errorf("without a report: %+v", v.Reported)
		}
		report(seven)
		f.says(backend(1), refused)
		time.Sleep(5 * time.Second)
		text := e.Save()
		end()
		<-ended
		later := New(Options{Checker: f, Log: slog.New(slog.DiscardHandler), Clock: now})
		if err := later.Restore(text, 0); err != nil {
			t.Fatal(err)
		}
		later.SetTargets([]Wanted{w})
		if v, _ := later.Verdict(w.Backend); v.Reported != seven || v.State != Failing {
			t.Errorf("after a restart: %+v", v)
		}
		both := &watch{targets: []*target{{selfReport: selfReport{reported: lb.ReportedWeight{Known: true, Value: 9}}},
			{}, {selfReport: selfReport{reported: seven}}}}
		if _, combined := both.combine(); combined.reported != seven {
			t.Errorf("of 9, none and 7: %+v", combined.reported)
		}
	})
}

// TestFinishing: a backend that fails by its own answer that it takes no new flow is finishing, also over a restart,
// until as many other failures have come as are needed for a verdict, or it passes.
func TestFinishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, now := newFake(), clocks()
		e := New(Options{Checker: f, Log: slog.New(slog.DiscardHandler), Clock: now})
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		w := backendOf(80, 1, everySecond())
		e.SetTargets([]Wanted{w})
		finishing := Fail("status 503", "answers with status 503")
		finishing.Finishing = true
		var saved []byte
		for _, step := range []struct {
			answer Answer
			checks int
			state  State
			want   bool
		}{{Pass("status 200"), 3, Healthy, false}, {finishing, 1, Healthy, false}, {finishing, 2, Failing, true},
			{refused, 1, Failing, true}, {finishing, 1, Failing, true}, {refused, 1, Failing, true},
			{refused, 3, Failing, false}, {finishing, 1, Failing, true}, {Pass("status 200"), 3, Healthy, false}} {
			f.says(backend(1), step.answer)
			time.Sleep(time.Duration(step.checks) * time.Second)
			if v, _ := e.Verdict(w.Backend); v.Finishing != step.want || v.State != step.state {
				t.Errorf("after %d times %q: %+v", step.checks, step.answer.Text, v)
			}
			if step.want {
				saved = e.Save()
			}
		}
		end()
		<-ended
		later := New(Options{Checker: f, Log: slog.New(slog.DiscardHandler), Clock: now})
		if err := later.Restore(saved, 0); err != nil {
			t.Fatal(err)
		}
		later.SetTargets([]Wanted{w})
		if v, _ := later.Verdict(w.Backend); !v.Finishing || v.State != Failing {
			t.Errorf("after a restart: %+v", v)
		}
		failing := machine{state: Failing}
		both := &watch{targets: []*target{{machine: failing, selfReport: selfReport{finishing: true}},
			{machine: failing}}}
		if _, combined := both.combine(); combined.finishing {
			t.Error("a backend of which one check fails otherwise is finishing")
		}
	})
}

func TestCombine(t *testing.T) {
	for _, c := range []struct {
		states string
		any    bool
		want   State
	}{
		{"h", false, Healthy}, {"hh", false, Healthy}, {"hf", false, Failing}, {"hu", false, Unknown},
		{"uf", false, Failing},
		{"hf", true, Healthy}, {"hu", true, Healthy}, {"uf", true, Unknown}, {"ff", true, Failing},
		{"", false, Unknown}, {"", true, Unknown},
	} {
		w := &watch{any: c.any}
		for _, s := range c.states {
			state := map[rune]State{'h': Healthy, 'f': Failing, 'u': Unknown}[s]
			w.targets = append(w.targets, &target{machine: machine{state: state},
				selfReport: selfReport{weight: fullWeight}})
		}
		if got, _ := w.combine(); got != c.want {
			t.Errorf("%q, any %t: %s, expected %s", c.states, c.any, got, c.want)
		}
	}
}

func TestAsk(t *testing.T) {
	f := newFake()
	e := New(Options{Checker: f})
	f.says(backend(1), refused)
	var steps []string
	results, err := e.CheckNow(t.Context(), backendOf(80, 1, everySecond(), everySecond()), func(s Step) {
		steps = append(steps, fmt.Sprint(s.Check, s.Name))
	})
	if err != nil || len(results) != 2 || results[1].State != Failing || results[1].Reason != refused.Reason ||
		fmt.Sprint(steps) != "[0connect 1connect]" {
		t.Errorf("%+v, %v, %v", results, steps, err)
	}
}

// starter is a fake that answers checks of TCP when they start, or a while after, and starts no others.
type starter struct {
	*fake
	after   time.Duration
	started atomic.Int32
}

func (s *starter) Start(ctx context.Context, e Endpoint, c *lb.Check, _ time.Duration, done func(Answer)) bool {
	if c.Type != lb.CheckTCP {
		return false
	}
	s.started.Add(1)
	if s.after == 0 {
		done(s.Check(ctx, e, c, nil))
		return true
	}
	go func() {
		select {
		case <-ctx.Done():
		case <-time.After(s.after):
		}
		done(s.Check(ctx, e, c, nil))
	}()
	return true
}

// TestStarter: checks that are started give the verdicts that they would give if they were asked, those
// that are not started are asked, and Run ends when all of them have.
func TestStarter(t *testing.T) {
	for _, after := range []time.Duration{0, 100 * time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := &starter{fake: newFake(), after: after}
			e := New(Options{Checker: s, Log: slog.New(slog.DiscardHandler)})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				e.Run(ctx)
				close(ended)
			}()
			asked := everySecond()
			asked.Type = lb.CheckICMP
			one, other := backendOf(80, 1, everySecond()), backendOf(80, 2, asked)
			e.SetTargets([]Wanted{one, other})
			time.Sleep(3 * time.Second)
			if after < time.Hour {
				expect(t, e, one, Healthy, "")
			}
			expect(t, e, other, Healthy, "")
			s.says(backend(1), refused)
			s.says(backend(2), refused)
			time.Sleep(4 * time.Second)
			if after < time.Hour {
				expect(t, e, one, Failing, "refuses connections")
			}
			expect(t, e, other, Failing, "refuses connections")
			if n := s.started.Load(); n == 0 || n > 8 {
				t.Errorf("%d checks were started in 7 s", n)
			}
			cancel()
			<-ended
		})
	}
}
