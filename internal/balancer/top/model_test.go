// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// start is when the tests' clock begins.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)

// fakeBalancer is a balancer with the answers that the test wants.
type fakeBalancer struct {
	status *ops.Status
	err    error
	orders []ops.Order
}

func (f *fakeBalancer) Status(context.Context) (*ops.Status, error) { return f.status, f.err }

func (f *fakeBalancer) Operate(_ context.Context, o ops.Order) (*ops.Operation, error) {
	f.orders = append(f.orders, o)
	return &ops.Operation{Verb: o.Verb, Targets: []ops.Target{{Service: o.Service, Backend: o.Backend}}}, f.err
}

func (f *fakeBalancer) Describe(_ context.Context, service, backend string) (string, error) {
	return "about " + service + " and " + backend + "\x1b[2J", f.err
}

// testScreen is a model on a terminal of a test.
type testScreen struct {
	t        *testing.T
	model    Model
	balancer *fakeBalancer
	now      time.Time
}

// newScreen draws on so many columns and lines, without a reading.
func newScreen(t *testing.T, width, height int, change func(*Options)) *testScreen {
	t.Helper()
	s := &testScreen{t: t, balancer: &fakeBalancer{}, now: start}
	options := Options{
		Balancer: s.balancer,
		At:       "/run/jeoul.sock",
		View:     Services,
		Interval: DefaultInterval,
		Now:      func() time.Time { return s.now },
	}
	if change != nil {
		change(&options)
	}
	model, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	s.model = model
	s.send(tea.WindowSizeMsg{Width: width, Height: height})
	return s
}

// send hands a message over, and returns the command that follows.
func (s *testScreen) send(msg tea.Msg) tea.Cmd {
	s.t.Helper()
	model, command := s.model.Update(msg)
	s.model = model.(Model)
	s.check()
	return command
}

// read has a status come after a while.
func (s *testScreen) read(after time.Duration, status *ops.Status) tea.Cmd {
	s.t.Helper()
	s.now = s.now.Add(after)
	return s.send(readingMsg{status: status, at: s.now, took: time.Millisecond})
}

// specialKeys are the keys that are no characters.
var specialKeys = map[string]rune{
	"enter":     tea.KeyEnter,
	"esc":       tea.KeyEscape,
	"up":        tea.KeyUp,
	"down":      tea.KeyDown,
	"end":       tea.KeyEnd,
	"home":      tea.KeyHome,
	"pgdown":    tea.KeyPgDown,
	"pgup":      tea.KeyPgUp,
	"backspace": tea.KeyBackspace,
	"tab":       tea.KeyTab,
}

// press presses keys, and runs the commands that they return.
func (s *testScreen) press(keys ...string) {
	s.t.Helper()
	for _, key := range keys {
		press := tea.KeyPressMsg{Text: key, Code: []rune(key)[0]}
		if code, ok := specialKeys[key]; ok {
			press = tea.KeyPressMsg{Code: code}
		}
		command := s.send(press)
		if command == nil {
			continue
		}
		switch msg := command().(type) {
		case operatedMsg, describedMsg:
			s.send(msg)
		}
	}
}

// lines are the lines on the screen.
func (s *testScreen) lines() []string {
	return strings.Split(ansi.Strip(s.model.View().Content), "\n")
}

// check fails where the screen does not fit, or has characters that a terminal would obey.
func (s *testScreen) check() {
	s.t.Helper()
	lines := s.lines()
	if len(lines) > max(s.model.height, 1) {
		s.t.Errorf("%d lines on a screen of %d", len(lines), s.model.height)
	}
	for _, line := range lines {
		if width := ansi.StringWidth(line); width > s.model.width {
			s.t.Errorf("%d columns on a screen of %d: %q", width, s.model.width, line)
		}
		if i := strings.IndexFunc(line, func(r rune) bool {
			return r < ' ' || r == '\x7f' || r == '\u202e' || s.model.glyphs.ascii && r > '~'
		}); i >= 0 {
			s.t.Errorf("%q has a character that may not be there", line)
		}
	}
}

// expectLine fails unless a line contains all of some texts, and returns it.
func (s *testScreen) expectLine(texts ...string) string {
	s.t.Helper()
	for _, line := range s.lines() {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			return line
		}
	}
	s.t.Fatalf("no line has %q:\n%s", texts, strings.Join(s.lines(), "\n"))
	return ""
}

// row returns the fields of the line that begins with a text, the mark of the cursor aside.
func (s *testScreen) row(name string) []string {
	s.t.Helper()
	for _, line := range s.lines() {
		fields := strings.Fields(strings.TrimPrefix(line, s.model.glyphs.cursor))
		if len(fields) > 0 && fields[0] == name {
			return fields
		}
	}
	s.t.Fatalf("no row %q:\n%s", name, strings.Join(s.lines(), "\n"))
	return nil
}

// sampled returns the status of a balancer with two services after so many seconds: web01 gets 100 connections, 1,000
// packets and 125,000 bytes a second, and web02 gets 300 connections.
func sampled(seconds uint64) *ops.Status {
	at := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, last}) }
	web := ops.Service{
		Name:     "web",
		VIP:      at(100),
		Port:     80,
		Protocol: lb.TCP,
		Mode:     lb.L2DSR,
		Tracked:  true,
		Active:   40,
		Backends: []ops.Backend{
			{
				Name:        "web01",
				Address:     at(11),
				Port:        80,
				Weight:      1,
				State:       lb.Up,
				Active:      10,
				Connections: 5000 + 100*seconds,
				Packets:     1000 * seconds,
				Bytes:       125_000 * seconds,
			},
			{Name: "web02", Address: at(12), Port: 8080, Weight: 3, State: lb.Up, Active: 30,
				Connections: 300 * seconds},
			{Name: "web03", Address: at(13), Port: 80, Weight: 1, State: lb.NoMAC,
				Reason: "does not answer ARP requests"},
		},
	}
	dns := ops.Service{Name: "dns", VIP: at(100), Port: 53, Protocol: lb.UDP, Mode: lb.NAT, Backends: []ops.Backend{
		{Name: "dns01", Address: at(21), Port: 53, Weight: 1, State: lb.Up}}}
	return &ops.Status{
		Version:   "0.4",
		PID:       7,
		Started:   start.Add(-time.Hour),
		Interface: "eth0",
		Hook:      ops.Hook{Name: lb.HookXDP},
		Services:  []ops.Service{web, dns},
		Flows:     &ops.Flows{Proven: 500, ProvenLimit: 1000},
		Outcomes: []ops.Outcome{{Name: "forwarded", Packets: 1000 * seconds}, {Name: "passed_not_ip", Packets: 9},
			{
				Name: "dropped_fragment",
			}, {Name: "dropped_no_route", Packets: 7, Help: "no route"},
			{Name: "dropped_no_backend", Packets: 20 * seconds, Help: "no backend takes new flows"}},
	}
}

func TestRatesComeFromCounters(t *testing.T) {
	s := newScreen(t, 200, 24, nil)
	s.expectLine("waiting")
	s.read(0, sampled(0))
	if row := s.row("web"); row[5] != "-" {
		t.Errorf("a rate after one reading: %q", row)
	}
	s.read(time.Second, sampled(1))
	// SERVICE, ADDRESS (two words), MODE, and from UP to TOTAL
	if got, want := s.row("web")[4:11], []string{"2/3", "400", "1.00k", "1.00M", "0", "40", "5,400"}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("%q, want %q", got, want)
	}
	s.expectLine("new 400/s", "in 1.00Mbit/s", "dropped 20/s", "backends up 3/4", "flows 50%")
	s.press("2")
	// BACKEND to DUE
	if got, want := s.row("web")[1:13], []string{"web01", "192.0.2.11", "up", "1", "100", "1.00k", "1.00M", "0", "10",
		"5,100", "25%", "25%"}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("%q, want %q", got, want)
	}
	s.expectLine("web02", "192.0.2.12:8080", "75%")
	s.expectLine("web03", "no-mac", "does not answer ARP requests")
	s.press("3")
	if got, want := s.row("dropped_no_backend")[1:3], []string{"20", "20"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if text := strings.Join(s.lines(), "\n"); strings.Contains(text, "passed") || strings.Contains(text, "forwarded ") {
		t.Errorf("packets that went their way are among the drops:\n%s", text)
	}
}

// TestDueFollowsAgents: the part that a backend is due is of the weight that its agent asks for.
func TestDueFollowsAgents(t *testing.T) {
	for name, tc := range map[string]struct {
		percent uint16
		change  func(*ops.Backend)
		want    []string // web01's and web02's, of weights 1 and 3
	}{
		"all":     {100, nil, []string{"25%", "75%"}},
		"half":    {50, nil, []string{"14%", "86%"}},
		"none":    {0, nil, []string{"0%", "100%"}},
		"a boost": {300, nil, []string{"25%", "75%"}},
		"forced":  {50, func(b *ops.Backend) { b.Forced = &ops.Forced{} }, []string{"25%", "75%"}},
		"slow, too": {50, func(b *ops.Backend) { b.SlowStart = &ops.SlowStart{Percent: 20} },
			[]string{"3.2%", "97%"}},
	} {
		status := sampled(0)
		web := status.Services[0].Backends
		for i := range web {
			web[i].Health = &ops.Health{State: lb.Healthy, WeightPercent: 100}
		}
		web[0].Health.WeightPercent = tc.percent
		if tc.change != nil {
			tc.change(&web[0])
		}
		s := newScreen(t, 200, 24, nil)
		s.read(0, status)
		s.press("2")
		for i, want := range tc.want {
			row := strings.Fields(strings.TrimPrefix(s.expectLine(web[i].Name), s.model.glyphs.cursor))
			if due := row[12]; due != want {
				t.Errorf("%s: %s is due %s, want %s", name, web[i].Name, due, want)
			}
		}
	}
}

// TestLimitsOfProxy: mode proxy refuses no flow beyond a limit.
func TestLimitsOfProxy(t *testing.T) {
	status := sampled(0)
	status.Services[0].Limits = &ops.Limits{Connections: 50, Refuse: lb.RefuseByReset}
	status.Services[1].Limits = &ops.Limits{Connections: 50}
	status.Services[1].Mode, status.Services[1].Proxy = lb.ModeProxy, &ops.ProxiedService{}
	s := newScreen(t, 200, 24, nil)
	s.read(0, status)
	s.press("5")
	s.expectLine("web: active flows", "new flows are refused: reset")
	s.expectLine("dns: active flows", "new connections wait")
}

// TestCountersBeginAnew: a daemon that is started again may count from 0.
func TestCountersBeginAnew(t *testing.T) {
	s := newScreen(t, 160, 24, nil)
	s.read(0, sampled(100))
	s.read(time.Second, sampled(101))
	s.read(time.Second, sampled(0))
	s.read(time.Second, sampled(1))
	if got := s.row("web")[5]; got != "400" {
		t.Errorf("%s connections a second after the counters began anew, want 400", got)
	}
}

// TestRatesLookBack: small figures do not flicker from reading to reading, and old ones are forgotten.
func TestRatesLookBack(t *testing.T) {
	h := &history{}
	for i, n := range []uint64{0, 1, 1, 2, 2, 3} {
		h.add(&ops.Status{Outcomes: []ops.Outcome{{Name: "x", Packets: n}}},
			start.Add(time.Duration(i)*500*time.Millisecond))
		if r := h.rate(outcomeID("x")); i >= 2 && r.Packets < 0.8 || r.Packets > 2 {
			t.Errorf("reading %d: %g a second", i, r.Packets)
		}
	}
	if len(h.samples) > 6 {
		t.Errorf("%d samples are kept", len(h.samples))
	}
}

func TestFilterAndSort(t *testing.T) {
	s := newScreen(t, 160, 24, func(o *Options) { o.View = Backends })
	s.read(0, sampled(0))
	s.read(time.Second, sampled(1))
	names := func() (names []string) {
		for _, i := range s.model.order {
			names = append(names, s.model.figures.backends[i].Name)
		}
		return names
	}
	s.press("/", "W", "E", "B", " ", "u", "p")
	if got := names(); !slices.Equal(got, []string{"web01", "web02"}) {
		t.Errorf("filtered: %q", got)
	}
	s.expectLine("/WEB up")
	s.press("enter")
	s.expectLine("2 of 4 rows")
	for s.model.places[Backends].sort.column != "NEW/S" {
		s.press("s")
	}
	if got := names(); !slices.Equal(got, []string{"web02", "web01"}) {
		t.Errorf("the most new connections first: %q", got)
	}
	s.expectLine("NEW/S▼")
	s.press("r")
	if got := names(); !slices.Equal(got, []string{"web01", "web02"}) {
		t.Errorf("reversed: %q", got)
	}
	s.press("esc")
	if got := names(); len(got) != 4 {
		t.Errorf("all rows: %q", got)
	}
	s.press("/", "z")
	s.expectLine("no row contains")
	s.press("backspace", "esc")
}

// TestCursorStaysOnItsRow: a key must not hit another backend because the order has changed.
func TestCursorStaysOnItsRow(t *testing.T) {
	s := newScreen(t, 160, 24, func(o *Options) { o.View, o.Sort = Backends, "new/s" })
	s.read(0, sampled(0))
	s.read(time.Second, sampled(1))
	s.press("home")
	if line := s.expectLine("▸"); !strings.Contains(line, "web02") {
		t.Fatalf("the first row is %q", line)
	}
	turned := sampled(2)
	turned.Services[0].Backends[0].Connections += 100_000
	s.read(time.Second, turned)
	if line := s.expectLine("▸"); !strings.Contains(line, "web02") {
		t.Errorf("the cursor went to %q", line)
	}
	s.press("d")
	s.expectLine("Drain web/web02")
}

func TestOperationsAskFirst(t *testing.T) {
	s := newScreen(t, 80, 24, func(o *Options) { o.View = Backends })
	s.read(0, sampled(0))
	s.press("x")
	s.expectLine("Disable web/web01 (192.0.2.11)", "out at once", "10 active flows")
	s.expectLine("New flows of web go to 1 other backends")
	s.press("esc")
	s.expectLine("nothing was changed")
	s.press("d", "1", "0", "x", "enter")
	s.expectLine(`"10x" is no time`)
	s.press("backspace", "m", "enter")
	s.expectLine("done: drain web/web01")
	s.press("w", "7", "0", "0", "0", "0", "enter")
	s.expectLine("is no weight")
	s.press("backspace", "backspace", "enter", "down", "down", "e")
	s.expectLine("Enable web/web03", "no-mac")
	s.expectLine("when it is reached")
	s.press("n", "down", "x")
	s.expectLine("No other backend of dns takes new flows")
	s.press("y")
	want := []ops.Order{{Verb: ops.Drain, Service: "web", Backend: "web01", Deadline: 10 * time.Minute},
		{
			Verb:    ops.Weight,
			Service: "web",
			Backend: "web01",
			Weight:  700,
		}, {Verb: ops.Disable, Service: "dns", Backend: "dns01"}}
	if !slices.Equal(s.balancer.orders, want) {
		t.Errorf("asked for %v, want %v", s.balancer.orders, want)
	}
	s.balancer.err = errors.New("the role read does not allow this")
	s.press("x", "y")
	s.expectLine("the role read does not allow this")
	s.press("1", "d")
	s.expectLine("select a backend first: press 2")
	s.press("u")
	s.expectLine("no operation that can be taken back")
}

func TestReadOnly(t *testing.T) {
	s := newScreen(t, 80, 24, func(o *Options) { o.View, o.ReadOnly = Backends, true })
	s.read(0, sampled(0))
	s.expectLine("read-only")
	for _, key := range []string{"d", "e", "x", "w", "u"} {
		s.press(key)
		s.expectLine("nothing is changed with --read-only")
		s.press("enter", "y", "esc")
	}
	s.press("enter", "d", "enter", "y")
	if len(s.balancer.orders) > 0 {
		t.Errorf("asked for %v", s.balancer.orders)
	}
}

func TestDetails(t *testing.T) {
	s := newScreen(t, 80, 24, nil)
	s.read(0, sampled(0))
	s.read(time.Second, sampled(1))
	s.press("enter")
	s.expectLine("about web and ?[2J")
	s.press("esc", "b")
	s.expectLine("[2 backends]")
	s.press("enter")
	s.expectLine("about web and web01")
	s.press("x")
	s.expectLine("Disable web/web01")
	s.press("esc", "esc", "?")
	s.expectLine("Keys:")
	s.press("end", "home", "q", "3", "enter")
	s.expectLine("MEANING", "no backend takes new flows")
	s.press("esc", "a")
	s.expectLine("dropped_fragment")
	s.press("a")
	if text := strings.Join(s.lines(), "\n"); strings.Contains(text, "dropped_fragment") {
		t.Errorf("an outcome that no packet had is shown:\n%s", text)
	}
}

// TestBalancerGoes: the screen says since when there is no answer, keeps the figures, and goes on.
func TestBalancerGoes(t *testing.T) {
	s := newScreen(t, 100, 24, nil)
	s.read(0, sampled(0))
	s.read(time.Second, sampled(1))
	s.now = s.now.Add(time.Second)
	if s.send(readingMsg{err: errors.New("no daemon"), at: s.now}) == nil {
		t.Error("it does not try again")
	}
	s.now = s.now.Add(7 * time.Second)
	s.send(readingMsg{err: errors.New("no daemon"), at: s.now})
	s.expectLine("no answer since 12:00:02 (7s)", "figures of 12:00:01", "no daemon")
	s.row("web")
	s.read(time.Second, sampled(10))
	s.expectLine("answers again, after 8s")
	s.send(dueMsg{})
	s.now = s.now.Add(3 * time.Second)
	s.send(clockMsg{s.now})
	s.expectLine("asked at 12:00:10, and not answered yet")
	if got := s.row("web")[5]; got != "400" {
		t.Errorf("%s a second across the gap, want 400", got)
	}
}

// TestClockJumps: rates, and how long a balancer is away, are of the time that has passed, whatever the clock was set
// to meanwhile; the time of the day is that of the clock.
func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, -20 * 365 * 24 * time.Hour} {
		s := newScreen(t, 100, 24, nil)
		began := time.Now()
		reading := func(seconds int, by time.Duration) {
			s.now = clockSet(t, began.Add(time.Duration(seconds)*time.Second), by)
			s.read(0, sampled(uint64(seconds)))
			if got := s.row("web")[5]; seconds > 0 && got != "400" {
				t.Errorf("%s connections a second after %d s, the clock set by %v; want 400", got, seconds, by)
			}
		}
		for seconds := range 3 {
			reading(seconds, 0)
		}
		for seconds := range 3 {
			reading(3+seconds, jump)
		}
		s.send(readingMsg{err: errors.New("no daemon"), at: s.now})
		s.now = clockSet(t, began.Add(12*time.Second), 0)
		s.send(readingMsg{err: errors.New("no daemon"), at: s.now})
		s.expectLine("(7s)", "no daemon")
		s.expectLine(began.Add(12 * time.Second).Local().Format(time.TimeOnly))
		reading(13, 0)
		s.expectLine("answers again, after 8s")
	}
}

// TestAgesAreTheBalancers: how long something lasts is by the clock of the balancer, which may be of another machine,
// or set, and goes on between readings whatever this machine's clock is set to.
func TestAgesAreTheBalancers(t *testing.T) {
	s := newScreen(t, 100, 24, nil)
	began := time.Now()
	for _, by := range []time.Duration{0, 3 * time.Hour, -5 * 24 * time.Hour} {
		status := sampled(1)
		status.At = time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC).Add(by)
		status.Started = status.At.Add(-100 * time.Second)
		status.Operations.InForce = []ops.Overlay{{Target: ops.Target{Service: "web", Backend: "web01"},
			Drain: &ops.Drained{At: status.At.Add(-7 * time.Second), Deadline: status.At.Add(time.Minute)}}}
		s.now = clockSet(t, began, by)
		s.read(0, status)
		s.press("6")
		s.expectLine("up 100s")
		s.expectLine("web/web01", " 60s ", " 7s ")
		s.send(clockMsg{now: clockSet(t, began.Add(15*time.Second), -by)})
		s.expectLine("up 115s")
		s.expectLine("web/web01", " 45s ", " 22s ")
		s.press("4")
		s.expectLine("this one", " 115s ")
	}
}

// clockSet returns a time as time.Now returns it when the clock has been set by so much: of another wall clock, and of
// the same steady one. No exported function makes such a time.
func clockSet(t *testing.T, at time.Time, by time.Duration) time.Time {
	t.Helper()
	set := at
	// The first word of a time.Time with both clocks has the seconds of the wall clock above 30 bits of nanoseconds.
	word := (*uint64)(unsafe.Pointer(&set))
	*word += uint64(int64(by/time.Second) << 30)
	if set.Sub(at) != 0 || set.Unix()-at.Unix() != int64(by/time.Second) {
		t.Fatalf("this Go lays a time out otherwise: %v set by %v is %v", at, by, set)
	}
	return set
}

// TestSizes: every view and everything that lies over it fits on screens of every size; check sees to it.
func TestSizes(t *testing.T) {
	for _, ascii := range []bool{false, true} {
		for _, width := range []int{1, 20, 39, 40, 60, 80, 100, 200} {
			for _, height := range []int{1, 7, 8, 12, 24, 60} {
				s := newScreen(t, width, height, func(o *Options) { o.ASCII = ascii })
				status := sampled(1)
				status.Problems = []string{
					"something is wrong, and this says at length what that is, in more words than a screen has columns",
				}
				s.read(0, status)
				for _, keys := range []string{"1", "2", "3", "4", "5", "6", "2d", "e", "x", "w", "/", "?", "s"} {
					for _, key := range strings.Split(keys, "") {
						s.press(key)
					}
					s.press("esc")
				}
			}
		}
	}
	s := newScreen(t, 20, 10, nil)
	s.expectLine("too small: 20x10")
	s.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	s.expectLine("waiting")
}

// TestNamesAreHarmless: names, reasons and answers come from elsewhere; a terminal obeys nothing of them.
func TestNamesAreHarmless(t *testing.T) {
	const evil = "we\x1b]0;owned\x07b\x1b[31m\u202e\n\u009b2J<b>\xff"
	for _, ascii := range []bool{false, true} {
		s := newScreen(t, 200, 24, func(o *Options) { o.ASCII = ascii })
		status := sampled(1)
		status.Services[0].Name, status.Services[0].Backends[0].Name = evil, evil
		status.Services[0].Backends[0].Reason, status.Problems = evil, []string{evil}
		status.Outcomes[3].Help, status.Operations.InForce = evil, []ops.Overlay{
			{Target: ops.Target{Service: evil, Backend: evil}, Weight: &ops.Weighted{By: evil}},
		}
		s.read(0, status)
		s.expectLine("we?]0;owned?b?[31m??", "<b>")
		for _, key := range []string{"2", "x", "esc", "enter", "esc", "3", "4", "6"} {
			s.press(key)
		}
		s.press("2", "x", "enter")
		if want := evil; s.balancer.orders[0].Service != want {
			t.Errorf("asked for %q, want the true name", s.balancer.orders[0].Service)
		}
		if raw := s.model.View().Content; strings.Contains(raw, "\x1b]") || strings.Contains(raw, "\x1b[31m\u202e") {
			t.Errorf("an escape sequence came through: %q", raw)
		}
	}
}

// TestManyBackends: 10,000 of them scroll, and the cursor is always on the screen.
func TestManyBackends(t *testing.T) {
	s := newScreen(t, 80, 24, func(o *Options) { o.View = Backends })
	status := &ops.Status{}
	for i := range 100 {
		service := ops.Service{Name: fmt.Sprintf("s%02d", i)}
		for j := range 100 {
			service.Backends = append(
				service.Backends,
				ops.Backend{Name: fmt.Sprintf("b%04d", 100*i+j), State: lb.Up, Weight: 1},
			)
		}
		status.Services = append(status.Services, service)
	}
	s.read(0, status)
	s.expectLine("b0000")
	s.press("end")
	s.expectLine("▸", "b9999")
	s.press("pgup", "up")
	s.expectLine("▸", "b9980")
	s.press("/", "b", "0", "5", "0", "0")
	s.expectLine("▸", "b0500")
}

// TestWatchingIsBounded: a balancer whose status takes long is asked less often.
func TestWatchingIsBounded(t *testing.T) {
	s := newScreen(t, 80, 24, nil)
	for took, want := range map[time.Duration]time.Duration{time.Millisecond: 499 * time.Millisecond,
		100 * time.Millisecond: 4900 * time.Millisecond, 5 * time.Second: maxPause} {
		if got := s.model.pause(took); got != want {
			t.Errorf("after %s: a pause of %s, want %s", took, got, want)
		}
	}
}
