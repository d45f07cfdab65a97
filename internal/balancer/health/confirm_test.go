// SPDX-License-Identifier: Apache-2.0

package health

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// tenSeconds is a check of which three in a row take half a minute.
func tenSeconds() lb.Check {
	check := everySecond()
	check.Interval = 10 * time.Second
	return check
}

// leftBy returns the state saved by a process whose checks got the fake's answers.
func leftBy(t *testing.T, f *fake, wanted ...Wanted) []byte {
	t.Helper()
	before := run(t, f)
	before.SetTargets(wanted)
	time.Sleep(time.Minute)
	synctest.Wait()
	return before.Save()
}

// following runs an engine that goes on with the state that another has saved, after such an absence.
func following(t *testing.T, f *fake, saved []byte, absent time.Duration, wanted ...Wanted) *Engine {
	t.Helper()
	f.mu.Lock()
	clear(f.asked)
	f.all = nil
	f.start = time.Now()
	f.mu.Unlock()
	e := New(Options{Checker: f, Log: slog.New(slog.DiscardHandler), Running: 10_000})
	if err := e.Restore(saved, absent); err != nil {
		t.Fatal(err)
	}
	e.SetTargets(wanted)
	begin(t, e)
	return e
}

// confirmed is the time by which a verdict is confirmed: the first check, and two more.
const confirmed = firstWithin + 2*confirmInterval + 10*time.Millisecond

// TestConfirms: where no process asked for longer than the interval, a backend's change of state is found soon after
// the start, by as many answers as ever; after a shorter absence at its own times.
func TestConfirms(t *testing.T) {
	pass := Pass("connected")
	for _, c := range []struct {
		name          string
		absent        time.Duration
		before, after Answer
		// then is the answer from the second check on, where it is another.
		then  *Answer
		state State
		asked int
	}{
		{"died meanwhile", time.Minute, pass, refused, nil, Failing, 3},
		{"died, in a short absence", 5 * time.Second, pass, refused, nil, Healthy, -1},
		{"lives", time.Minute, pass, pass, nil, Healthy, 1},
		{"lives, and one probe is lost", time.Minute, pass, refused, &pass, Healthy, 2},
		{"came back meanwhile", time.Minute, refused, pass, nil, Healthy, 2},
		{"is dead still", time.Minute, refused, refused, nil, Failing, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, old := newFake(), newFake()
				w := backendOf(80, 1, tenSeconds())
				old.says(backend(1), c.before)
				saved := leftBy(t, old, w)
				f.says(backend(1), c.after)
				e := following(t, f, saved, c.absent, w)
				if v, _ := e.Verdict(w.Backend); v.Unconfirmed != (c.absent > tenSeconds().Interval) {
					t.Errorf("the verdict is that of the process before: %v", v.Unconfirmed)
				}
				if c.then != nil {
					for range 1000 {
						synctest.Wait()
						if v, _ := e.Verdict(w.Backend); v.Checks[0].Failed > 0 {
							break
						}
						time.Sleep(time.Millisecond)
					}
					f.says(backend(1), *c.then)
				}
				time.Sleep(confirmed)
				synctest.Wait()
				v, _ := e.Verdict(w.Backend)
				if v.State != c.state || v.Unconfirmed {
					t.Errorf("after %v: %+v, want %s", confirmed, v, c.state)
				}
				if n := len(f.asked[backend(1)]); c.asked >= 0 && n != c.asked {
					t.Errorf("asked %d times, want %d", n, c.asked)
				}
				// From then on at its own times.
				f.mu.Lock()
				before := len(f.all)
				f.mu.Unlock()
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := len(f.all) - before; n < 5 || n > 7 {
					t.Errorf("asked %d times in the next minute", n)
				}
			})
		})
	}
}

// TestConfirmsInTheEnd: a process that ends before it knows better leaves that to the next one, and an endpoint that
// cannot be asked hurries no check for ever.
func TestConfirmsInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, old := newFake(), newFake()
		w := backendOf(80, 1, tenSeconds())
		saved := leftBy(t, old, w)
		between := New(Options{Checker: f, Log: slog.New(slog.DiscardHandler)})
		if err := between.Restore(saved, time.Minute); err != nil {
			t.Fatal(err)
		}
		between.SetTargets([]Wanted{w})
		f.says(backend(1), Trouble("no way", "there is no way"))
		e := following(t, f, between.Save(), 0, w)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if v, _ := e.Verdict(w.Backend); v.State != Healthy || !v.Unconfirmed {
			t.Errorf("without an answer that tells: %+v", v)
		}
		if n, most := len(f.all), int(w.Checks[0].Rise+w.Checks[0].Fall)+spareConfirmChecks+4; n < 5 || n > most {
			t.Errorf("asked %d times in 30 s, want %d at most", n, most)
		}
		f.says(backend(1), refused)
		time.Sleep(3 * w.Checks[0].Interval)
		expect(t, e, w, Failing, "refuses connections")
	})
}

// TestManyConfirm: where thousands of backends are asked soon, and have all died, checks start no faster than the
// schedule bounds them.
func TestManyConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const targets = 2000
		f, old := newFake(), newFake()
		var wanted []Wanted
		for i := range targets {
			wanted = append(wanted, backendOf(80, i, everySecond()))
			f.says(backend(i), refused)
		}
		saved := leftBy(t, old, wanted...)
		e := following(t, f, saved, time.Minute, wanted...)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for _, w := range wanted {
			if v, _ := e.Verdict(w.Backend); v.State != Failing || v.Unconfirmed {
				t.Fatalf("%s after 3 s: %+v", w.Backend.Address, v)
			}
		}
		const window = 100 * time.Millisecond
		windows := map[time.Duration]int{}
		for _, at := range f.all {
			windows[at/window]++
		}
		for i, n := range windows {
			if mean := targets * int(window) / int(time.Second); n > 2*mean {
				t.Errorf("%d checks began at %v..%v: the mean is %d", n, i*window, (i+1)*window, mean)
			}
		}
	})
}
