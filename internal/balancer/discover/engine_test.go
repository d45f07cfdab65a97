// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// fakeOrigin is an origin whose answers a test gives.
type fakeOrigin chan Answer

func (s fakeOrigin) Watch(ctx context.Context, notify func(Answer)) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-s:
			notify(a)
		}
	}
}

// fakeMemory is a Memory.
type fakeMemory struct {
	text []byte
	err  error
}

func (k *fakeMemory) Load() ([]byte, error) { return k.text, nil }
func (k *fakeMemory) Save(text []byte) error {
	if k.err == nil {
		k.text = bytes.Clone(text)
	}
	return k.err
}

// engineTest is an engine with one origin, of the service web.
type engineTest struct {
	t *testing.T
	*Engine
	services []lb.Service
	origin   fakeOrigin
	memory   *fakeMemory
	log      bytes.Buffer
	stop     func()
}

var testService = []lb.Service{{Name: "web",
	Discovery: lb.Discovery{DNS: lb.DNSOrigin{Name: "web", OriginLimits: lb.OriginLimits{Stale: time.Hour, Max: 3}}}}}

func newEngineTest(t *testing.T, memory *fakeMemory) *engineTest {
	return newEngineTestOf(t, memory, testService)
}

func newEngineTestOf(t *testing.T, memory *fakeMemory, services []lb.Service) *engineTest {
	s := &engineTest{t: t, services: services, origin: make(fakeOrigin), memory: memory}
	s.Engine = New(Options{
		Provider: func(lb.Service, lb.Origin) Provider { return s.origin }, Memory: memory,
		Clock: func() clock.Reading { return clock.At(time.Now(), "boot", time.Since(time.Unix(0, 0))) },
		Log:   slog.New(slog.NewTextHandler(&s.log, nil)),
	})
	s.SetServices(services)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	s.stop = func() { cancel(); <-done }
	return s
}

// notify has the origin say backends of these names.
func (s *engineTest) notify(names ...string) {
	var found []Found
	for i, name := range names {
		found = append(found,
			Found{Backend: lb.Backend{Name: name, Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}),
				Weight: 1}})
	}
	s.origin <- Answer{Found: found}
}

func (s *engineTest) notifyError(why string) { s.origin <- Answer{Err: errors.New(why)} }

// expect compares the set as "a b", with "!" and the problem behind, "?" where it is out of date.
func (s *engineTest) expect(want string) {
	s.t.Helper()
	synctest.Wait()
	set := s.Sets(s.services)[0]
	var words []string
	for _, b := range set.Backends {
		words = append(words, b.Name)
	}
	if set.Overdue {
		words = append(words, "?")
	}
	if set.Problem != "" {
		words = append(words, "! "+set.Problem)
	}
	if got := strings.Join(words, " "); got != want {
		s.t.Errorf("the set is %q, not %q", got, want)
	}
}

// signalled reports whether there may be something else since the last call.
func (s *engineTest) signalled() bool {
	synctest.Wait()
	select {
	case <-s.Changes():
		return true
	default:
		return false
	}
}

// TestStale: an origin that fails keeps its last set, which is out of date after the bound; the first
// answer after that counts at once.
func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEngineTest(t, &fakeMemory{})
		s.expect("")
		s.notifyError("away")
		s.expect("! away")
		s.notify("a", "b")
		s.expect("a b")
		s.signalled()
		s.notify("b", "a") // in another order, at the same addresses: b is where a was
		s.notify("a", "b")
		s.expect("a b")
		s.signalled()
		s.notify("a", "b")
		if s.signalled() {
			t.Error("what says the same was signalled")
		}
		s.notifyError("away")
		s.expect("a b ! away")
		time.Sleep(time.Hour - time.Second)
		s.notifyError("gone") // the bound is of the first failure
		s.expect("a b ! gone")
		s.signalled()
		time.Sleep(time.Second)
		s.expectSignal("the end of the bound")
		s.expect("a b ? ! gone")
		s.notify("c")
		s.expect("c")
		time.Sleep(2 * time.Hour)
		s.expect("c")
		s.stop()
	})
}

// TestEmpty: an origin that says there is none keeps its last set within the bound, and has none then.
// One that is sure has none at once.
func TestEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEngineTest(t, &fakeMemory{})
		s.notify("a")
		s.notify()
		s.expect("a ! names no backend")
		time.Sleep(time.Hour)
		s.expect("! names no backend")
		s.notifyError("away") // and its first set still counts for the failure's bound, which has passed
		s.expect("a ? ! away")
		s.notify("b")
		s.origin <- Answer{Authoritative: true}
		s.expect("")
		s.stop()
	})
}

// holdingService has a DNS origin whose backends are held for 30 s.
var holdingService = []lb.Service{{Name: "web", Discovery: lb.Discovery{DNS: lb.DNSOrigin{Name: "web",
	Hold: 30 * time.Second, OriginLimits: lb.OriginLimits{Stale: time.Hour, Max: 10}}}}}

// expectSignal fails the test if an event was not signalled.
func (s *engineTest) expectSignal(event string) {
	s.t.Helper()
	if !s.signalled() {
		s.t.Errorf("%s was not signalled", event)
	}
}

// records has the origin answer with backends of these names, whose addresses follow from them.
func (s *engineTest) records(names ...string) {
	var found []Found
	for _, name := range names {
		address := netip.AddrFrom4([4]byte{192, 0, 2, name[0]})
		found = append(found, Found{Backend: lb.Backend{Name: name, Address: address, Weight: 1}})
	}
	s.origin <- Answer{Found: found}
}

// TestHold: a backend that answers lack stays for the bound, and the set of a server that gives a random part of the
// records does not change. While the origin fails, the time does not pass.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEngineTestOf(t, &fakeMemory{}, holdingService)
		s.records("a", "b")
		s.records("b", "c")
		s.expect("a b c")
		s.signalled()
		for range 20 {
			for _, part := range [][]string{{"c", "a"}, {"a", "b"}, {"b", "c"}} {
				time.Sleep(time.Second)
				s.records(part...)
				s.expect("a b c")
			}
		}
		if s.signalled() {
			t.Error("parts of the same set were signalled")
		}
		s.records("b")
		time.Sleep(29 * time.Second)
		s.expect("a b c")
		s.signalled()
		time.Sleep(time.Second)
		s.expectSignal("the end of the bound")
		s.expect("b")

		s.records("a", "b")
		s.records("b")
		time.Sleep(10 * time.Second)
		s.notifyError("away")
		time.Sleep(time.Minute)
		s.expect("a b ! away")
		s.records("b")
		time.Sleep(19 * time.Second)
		s.expect("a b")
		time.Sleep(time.Second)
		s.expect("b")

		s.records("a", "b")
		s.records()
		s.expect("a b ! names no backend")
		time.Sleep(time.Hour)
		s.expect("! names no backend")
		s.records("b") // the set before was used for as long as it may be
		s.expect("b")
		s.stop()
	})
}

// TestHoldKept: the next process holds backends on, from the first answer.
func TestHoldKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &fakeMemory{}
		s := newEngineTestOf(t, memory, holdingService)
		s.records("a", "b")
		s.records("b")
		time.Sleep(10 * time.Second)
		s.stop()
		time.Sleep(time.Minute)
		s = newEngineTestOf(t, memory, holdingService)
		s.expect("a b")
		s.records("b")
		time.Sleep(19 * time.Second)
		s.expect("a b")
		time.Sleep(time.Second)
		s.expect("b")
		s.stop()
	})
}

// TestHoldServices: an SRV record's target keeps its other ports, and not the address from which it has moved; an
// endpoint has one target. Names are unique among all, and do not change with the part of an answer.
func TestHoldServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEngineTestOf(t, &fakeMemory{}, holdingService)
		answer := func(records ...string) {
			var found []Found
			for _, record := range records {
				target, at, _ := strings.Cut(record, "@")
				endpoint := netip.MustParseAddrPort(at)
				found = append(found, Found{Target: target, Backend: lb.Backend{Address: endpoint.Addr(),
					Port: endpoint.Port(), Weight: 1}})
			}
			nameTargets(found)
			s.origin <- Answer{Found: found}
		}
		answer("n1.@192.0.2.1:81", "n2.@192.0.2.2:80")
		s.expect("n1 n2")
		answer("n1.@192.0.2.1:82")
		s.expect("n1-192.0.2.1:81 n1-192.0.2.1:82 n2")
		answer("n1.@192.0.2.1:81")
		s.expect("n1-192.0.2.1:81 n1-192.0.2.1:82 n2")
		answer("n1.@192.0.2.3:81")
		s.expect("n1 n2")
		answer("n3.@192.0.2.2:80")
		s.expect("n1 n3")
		s.stop()
	})
}

// TestMost: a set is cut to its bound, in an order that stays.
func TestMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEngineTest(t, &fakeMemory{})
		s.notify("e", "b", "d", "a", "c")
		s.expect("a b c")
		if notes := s.Sets(testService)[0].Notes; len(notes) != 1 || !strings.Contains(notes[0], "5 backends, of which 3") {
			t.Errorf("notes %q", notes)
		}
		s.stop()
	})
}

// TestKept: a process that follows has the sets of the one before until its origins answer, and of
// those that do not, within the bound, which goes on.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &fakeMemory{}
		s := newEngineTest(t, memory)
		s.notify("a", "b")
		synctest.Wait()
		memory.err = errors.New("no room") // a kill: the set in force was saved before
		s.stop()
		if !strings.Contains(s.log.String(), "no room") {
			t.Errorf("the log has %s", s.log.String())
		}
		memory.err = nil

		s = newEngineTest(t, memory)
		s.expect("a b")
		s.notifyError("away")
		s.expect("a b ! away")
		s.stop()

		time.Sleep(59 * time.Minute)
		s = newEngineTest(t, memory)
		s.expect("a b")
		time.Sleep(2 * time.Minute)
		s.expect("a b ? ! away")
		s.notify("c")
		s.expect("c")
		s.stop()
	})
}

// TestForgotten: the sets of an origin that is not followed any more are not kept.
func TestForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &fakeMemory{}
		s := newEngineTest(t, memory)
		s.notify("a")
		synctest.Wait()
		s.SetServices(nil)
		s.stop()
		if all, err := decode(memory.text, clock.Read()); err != nil || len(all) != 0 {
			t.Errorf("kept: %v, %v", all, err)
		}
		for _, text := range []string{"{", `{"version": 9}`} {
			s = newEngineTest(t, &fakeMemory{text: []byte(text)})
			s.expect("")
			if !strings.Contains(s.log.String(), "the saved discovered backends") {
				t.Errorf("of %q the log has %s", text, s.log.String())
			}
			s.stop()
		}
	})
}

func TestNameOf(t *testing.T) {
	long := strings.Repeat("a", 70)
	for text, want := range map[string]string{"web-1": "web-1", "2001:db8::1": "2001:db8::1", "a b/c": "a-b-c",
		"": "-e3b0c442"} {
		if got := backendName(text); got != want {
			t.Errorf("%q is named %q, not %q", text, got, want)
		}
	}
	if a, b := backendName(long+"1"), backendName(long+"2"); a == b || len(a) != maxName {
		t.Errorf("long names are %q and %q", a, b)
	}
}

// FuzzKept: the content of a file is restored, or is an error.
func FuzzKept(f *testing.F) {
	f.Add([]byte(
		`{"version":1,"clock":{"wall":"2026-01-02T03:04:05Z","boot":"b","up_ns":5},"origins":{"dns web":{"found":[{"name":"a","address":"192.0.2.1","port":0,"weight":1}],"taken":"2026-01-02T03:04:05Z"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := decode(text, clock.Read())
		if err != nil {
			return
		}
		for key, k := range all {
			if k == nil || !k.awaited || k.since.IsZero() && !json.Valid(text) {
				t.Errorf("%s: %+v", key, k)
			}
			fmt.Fprint(new(bytes.Buffer), k.found)
		}
	})
}
