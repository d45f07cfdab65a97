// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// happening returns a suite of the small experiment in which these events happen.
func happening(events ...string) string {
	return strings.Replace(smallChange, smallEvents, "events: ["+strings.Join(events, ", ")+"], ", 1)
}

// smallEvents are those of a suite of the small experiment.
const smallEvents = "events: [add, remove, drain, reweigh, flap, reload, undo, silent, reset, share], "

const smallChange = `name: small
lab: {clients: 2, servers: 6}
repeats: 1
subjects:
  - name: iptables-nth
  - name: jeoul-l2dsr-xdp
    params: {scheduler: [maglev]}
loads:
  - kind: change
    concurrency: [40]
    changes: {` + smallEvents + `flaps: 2, reloads: 2, new_per_second: 20, queries_per_second: 20, ports: 50, reused: 20, pace: 200ms, lap: 200ms, silence: 1s}
`

func TestChangeSuiteErrors(t *testing.T) {
	for name, tc := range map[string]struct{ from, to, says string }{
		"none": {"", "", ""},
		"few servers": {"servers: 6", "servers: 5",
			"s.yaml:9: loads[0]: change needs at least 6 servers"},
		"no flaps": {"flaps: 2, ", "", "s.yaml:11: loads[0].changes.flaps: 0 is not possible"},
		"many ports": {"ports: 50", "ports: 50000",
			"loads[0].changes.ports: 50000 is not possible; use 1 to 40000"},
		"many reused": {"reused: 20", "reused: 701",
			"loads[0].changes.reused: 701 is not possible; use 1 to 700"},
		"a short pace": {"pace: 200ms", "pace: 10ms",
			"loads[0].changes.pace: 10ms is not possible; use 100ms to 1m0s"},
		"a short lap": {"lap: 200ms", "lap: 10ms",
			"loads[0].changes.lap: 10ms is not possible; use 100ms to 1m0s"},
		"no dead": {"share], ", "share, kill], kills: 1, ",
			"loads[0].changes.dead: 0s is not possible"},
		"an unknown event": {"[add, remove,", "[add, explode,",
			`loads[0].changes.events[1]: unknown event "explode": use some of add, remove`},
		"only what its events need": {"share], flaps: 2, ", "share], restarts: 0, flaps: 2, ", ""},
		"no upgrades":               {"share], ", "share, upgrade], ", "loads[0].changes.upgrades: 0 is not possible"},
		"no kills": {"share], ", "share, kill], dead: 1s, ",
			"loads[0].changes.kills: 0 is not possible"},
		"no quiet": {"share], ", "share, quiet], ", "loads[0].changes.quiet: 0s is not possible"},
		"too many numbers": {"share], ", "share], numbered_per_second: 2000000, ",
			"loads[0].changes.numbered_per_second: 2000000 is not possible"},
		"no silence":     {", silence: 1s", "", "loads[0].changes.silence: 0s is not possible"},
		"an unknown key": {"flaps: 2", "flops: 2", "s.yaml:11: loads[0].changes: unknown key flops"},
		"a duration": {"concurrency: [40]", "concurrency: [40]\n    duration: 1s",
			"change ends when its events are over"},
		"no connections": {"[40]", "[]", "loads[0].concurrency: empty"},
		"no balancer":    {"name: iptables-nth", "name: direct", "direct has no backends that could change"},
		"no fault": {"share], ",
			"share, dies], check: {interval: 1s, timeout: 1s, fall: 3, rise: 2}, ",
			"loads[0].changes.fault: 0s is not possible"},
		"no check": {"share], ", "share, hangs], fault: 1s, ",
			"loads[0].changes.check.interval: 0s is not possible"},
		"a slow check": {"share], ", "share], check: {interval: 1s, timeout: 2s, fall: 3, rise: 2}, ",
			"loads[0].changes.check.timeout: 2s is longer than the interval"},
		"a check that never fails": {"share], ", "share], check: {interval: 1s, timeout: 1s, rise: 2}, ",
			"loads[0].changes.check.fall: 0 is not possible"},
		"HTTP only": {"name: iptables-nth", "name: haproxy-http\n    params: {threads: [1]}",
			"haproxy-http speaks HTTP only"},
	} {
		_, err := ParseSuite("s.yaml", []byte(strings.Replace(smallChange, tc.from, tc.to, 1)))
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v\nwant it to say %q", name, err, tc.says)
		}
	}
}

// changePoint is a point of a change experiment on paper.
func changePoint(t *testing.T, name string, params subject.Params, connections int) Point {
	t.Helper()
	s, ok := subject.Find(name)
	if !ok {
		t.Fatalf("no subject %s", name)
	}
	return Point{Subject: s, Params: params, Concurrency: connections, Experiment: changeExperiment{},
		By: Load{Changes: Changes{Ports: 1000}}, Form: Form{Lab: Size{Clients: 5, Servers: 25}}}
}

func TestChangeHoldsWhatItsSubjectCanCarry(t *testing.T) {
	limits := probe.Limits{OpenFiles: 20_000, Cores: 2, LocalPorts: 64_512}
	haproxy := subject.Params{"threads": 2, "splice": "off"}
	for _, tc := range []struct {
		point Point
		want  int
		says  string
	}{
		{changePoint(t, "iptables-nth", nil, 10_000), 10_000, ""},
		{changePoint(t, "haproxy-tcp", haproxy, 2000), 2000, ""},
		// Of the 9,750 that it can carry, one in 21 is left for new ones.
		{changePoint(t, "haproxy-tcp", haproxy, 10_000), 9200,
			"9200 connections and not 10000, for 10500 connections at once: HAProxy needs two open files"},
	} {
		got, note := tc.point.connections(limits)
		if got != tc.want || (note == "") != (tc.says == "") || !strings.HasPrefix(note, tc.says) {
			t.Errorf("%s: %d connections, note %q; want %d, %q", tc.point.Subject.Name(), got, note, tc.want, tc.says)
		}
	}
}

func TestChangeObstacles(t *testing.T) {
	limits := probe.Limits{OpenFiles: 2000, Cores: 1, LocalPorts: 3000}
	for _, tc := range []struct {
		point Point
		says  string
	}{
		{changePoint(t, "iptables-nth", nil, 5000), ""},
		{changePoint(t, "iptables-nth", nil, 10_000), "2000 connections per client: it needs 2200 open files"},
		// it holds what it can
		{changePoint(t, "haproxy-tcp", subject.Params{"threads": 1, "splice": "off"}, 5000), ""},
		{changePoint(t, "haproxy-tcp", subject.Params{"threads": 2, "splice": "off"}, 100),
			"2 threads: this machine has 1 cores"},
	} {
		if got := tc.point.obstacle(limits, Absent{}); (got == "") != (tc.says == "") ||
			!strings.HasPrefix(got, tc.says) {
			t.Errorf("%s, %d connections: obstacle %q, want %q", tc.point.Subject.Name(), tc.point.Concurrency,
				got, tc.says)
		}
	}
	limits.OpenFiles, limits.LocalPorts = 20_000, 2500
	if got := changePoint(t, "iptables-nth", nil, 10_000).obstacle(limits, Absent{}); !strings.Contains(got,
		"2500 local ports") {
		t.Errorf("obstacle %q, want one about ports", got)
	}
}

func TestCompareFlows(t *testing.T) {
	flow := func(port int) live.Flow { return live.Flow{Client: "client01", Port: port} }
	before := map[live.Flow]string{flow(1): "a", flow(2): "a", flow(3): "b", flow(4): "c", flow(5): "c"}
	// Port 5 was taken the second time, port 6 the first time.
	after := map[live.Flow]string{flow(1): "b", flow(2): "c", flow(3): "b", flow(4): "b", flow(6): "b"}
	if got, want := compare(before, after, "a"), (moves{tried: 4, moved: 3, ofLeft: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// paperTrial is a change experiment in a laboratory on paper, of which web01 has
// left and web02 drains.
func paperTrial(t *testing.T) *changeTrial {
	l := &lab.Lab{}
	for i := range 6 {
		l.Servers = append(l.Servers, &lab.Host{Name: fmt.Sprintf("web%02d", i+1)})
	}
	return &changeTrial{
		runner: &runner{lab: l}, trial: Trial{Point: changePoint(t, "iptables-nth", nil, 100)},
		service: subject.Service{Servers: slices.Clone(l.Servers[1:]), Weights: map[string]int{"web02": 0}},
		left:    map[string]bool{"web01": true},
	}
}

func TestChangeTellsWhatLeftFromWhatStayed(t *testing.T) {
	c := paperTrial(t)
	counts := live.Counts{
		Held: map[string]uint64{"web02": 40, "web03": 50},
		Broken: map[string]map[live.Cause]uint64{
			"web01": {live.Reset: 1}, "web02": {live.Reset: 2, live.Silent: 4},
			"web03": {live.Moved: 8, live.Other: 16}, "web04": {live.Closed: 32}},
		Opened: 70, Late: map[string]uint64{"web01": 1, "web02": 2, "web03": 4},
		Failed:  map[live.Cause]uint64{live.Refused: 3, live.Silent: 5},
		Queries: 90, Unanswered: 6, Turned: map[string]uint64{"web01": 1, "web04": 2, "web05": 4},
	}
	got := results.Trial{Metrics: map[string]float64{}}
	c.writeCounts(changeEvent{leaves: []int{serverFlapping}}, counts, &got)
	want := map[string]float64{
		results.Connections: 90, results.Broken: 30, results.BrokenReset: 2, results.BrokenSilent: 4,
		results.BrokenMoved:  8,
		results.BrokenClosed: 0, results.BrokenWrong: 0, results.Ended: 33,
		results.NewConnections: 70, results.NewFailed: 8, results.NewToLeft: 3,
		results.ReusedConnections: 0, results.ReusedFailed: 0, results.ReusedTaken: 0, results.LostSYNs: 0,
		results.UDPQueries: 90, results.UDPUnanswered: 6, results.UDPMoved: 4, results.UDPMovedOfLeft: 3,
		results.Requests: 0,
	}
	if diff := cmp.Diff(want, got.Metrics); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"3 new connections failed: refused", "5 new connections failed: silent"},
		got.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// TestChangeTellsWhoIsOlderThanAnAbsence: of a server that was away, connections that are
// older end late, and the others break.
func TestChangeTellsWhoIsOlderThanAnAbsence(t *testing.T) {
	c := paperTrial(t)
	c.away = map[string]time.Time{"web04": time.Now().Add(-time.Minute)}
	sample := func(server string, age time.Duration) live.Break {
		return live.Break{Server: server, Cause: live.Reset, Age: age}
	}
	counts := live.Counts{
		Broken:  map[string]map[live.Cause]uint64{"web03": {live.Reset: 1}, "web04": {live.Reset: 4}},
		Samples: []live.Break{sample("web03", time.Hour), sample("web04", time.Hour), sample("web04", time.Second)},
	}
	got := results.Trial{Metrics: map[string]float64{}}
	c.writeCounts(changeEvent{}, counts, &got)
	if m := got.Metrics; m[results.Ended] != 1 || m[results.Broken] != 4 || m[results.BrokenReset] != 4 {
		t.Errorf("%g ended and %g broke, %g by a reset; want 1, 4 and 4", m[results.Ended], m[results.Broken],
			m[results.BrokenReset])
	}
	if len(got.Notes) != 1 || strings.Count(got.Notes[0], "web04") != 1 {
		t.Errorf("the notes are %q", got.Notes)
	}
}

// TestSilenceIsSplitAtItsNotice: what was sent before the subject knew is one thing, what
// it sent to a dead host later another; one that never knew has all before.
func TestSilenceIsSplitAtItsNotice(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	moments := func(seconds ...int) (m live.Moments) {
		for _, s := range seconds {
			m = append(m, at(s).UnixMicro())
		}
		return m
	}
	counts := live.Counts{LostSYNs: moments(11, 12, 14, 16), LostLaps: moments(11), LostQueries: moments(13, 17)}
	for name, tc := range map[string]struct {
		noticed time.Time
		want    map[string]float64
	}{
		"noticed": {at(13), map[string]float64{results.NoticedSeconds: 3, results.BackSeconds: 1,
			results.SilentSeconds:  8,
			results.LostSYNsBefore: 2, results.LostSYNsAfter: 2, results.ReusedFailedBefore: 1,
			results.ReusedFailedAfter:   0,
			results.UDPUnansweredBefore: 0, results.UDPUnansweredAfter: 2}},
		"never": {time.Time{}, map[string]float64{results.SilentSeconds: 8,
			results.LostSYNsBefore: 4, results.LostSYNsAfter: 0, results.ReusedFailedBefore: 1,
			results.ReusedFailedAfter:   0,
			results.UDPUnansweredBefore: 2, results.UDPUnansweredAfter: 0}},
	} {
		s := silence{cut: at(10), noticed: tc.noticed, heard: at(18)}
		if !tc.noticed.IsZero() {
			s.back = at(19)
		}
		got := map[string]float64{}
		s.write(counts, true, got)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFaultIsSplitAtItsNotice: what had begun before the fault, until the subject knew, and later
// are three things.
func TestFaultIsSplitAtItsNotice(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	moments := func(seconds ...int) (m live.Moments) {
		for _, s := range seconds {
			m = append(m, at(s).UnixMicro())
		}
		return m
	}
	counts := live.Counts{LostNew: moments(9, 11, 14), LostLaps: moments(8, 12, 15), LostQueries: moments(11, 13)}
	for name, tc := range map[string]struct {
		fault fault
		want  map[string]float64
	}{
		"noticed": {fault{began: at(10), noticed: at(13), over: at(20), back: at(22)}, map[string]float64{
			results.FaultSeconds: 10, results.NoticedSeconds: 3, results.BackSeconds: 2,
			results.InFlight: 2, results.NewFailedBefore: 2, results.NewFailedAfter: 2, results.LastFailedSeconds: 5,
			results.UDPUnansweredBefore: 1, results.UDPUnansweredAfter: 1}},
		"never": {fault{began: at(10), over: at(20)}, map[string]float64{
			results.FaultSeconds: 10, results.InFlight: 2, results.NewFailedBefore: 4, results.NewFailedAfter: 0,
			results.LastFailedSeconds:   5,
			results.UDPUnansweredBefore: 2, results.UDPUnansweredAfter: 0}},
	} {
		got := map[string]float64{}
		tc.fault.write(counts, true, got)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFaultsTurnsAreNoted: where a subject had the backend serve during the fault, the results say when.
func TestFaultsTurnsAreNoted(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	f := fault{began: at(10), turns: []time.Time{at(12), at(14), at(17)}}
	want := []string{"from 2.0 s after the fault began to 4.0 s, the backend was shown to serve",
		"from 7.0 s after the fault began to the end of the fault, the backend was shown to serve"}
	if diff := cmp.Diff(want, f.notes()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestComingAgainIsToldByServer(t *testing.T) {
	c := paperTrial(t)
	c.came = &cameAgain{had: 9}
	got := results.Trial{Metrics: map[string]float64{}}
	c.writeReused(live.Counts{Lapped: 50, Taken: 1, LostSYNs: live.Moments{1, 2}, LostLaps: live.Moments{1},
		Again: map[string]uint64{"web02": 3, "web04": 5}}, &got)
	want := map[string]float64{results.ReusedConnections: 50, results.ReusedTaken: 1, results.LostSYNs: 2,
		results.ReusedFailed:   1,
		results.ResetByDrained: 9, results.CameAgain: 8, results.AgainToDrained: 3}
	if diff := cmp.Diff(want, got.Metrics); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// startChangeOf returns a runner of a change experiment on some of its subjects, with our own binary built for it.
func startChangeOf(t *testing.T, text string, subjects ...string) *runner {
	t.Helper()
	begin(t)
	executable := buildJeoul(t)
	suite, err := ParseSuite("small.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := patientRunner(t, Options{Suite: suite, Dir: t.TempDir(), Only: subjects, Progress: t.Output(),
		Executable: executable})
	return r
}

// checkEvents checks the results of a trial in which nothing may break.
func checkEvents(t *testing.T, trials []results.Trial, want ...string) {
	t.Helper()
	var events []string
	for _, trial := range trials {
		name := fmt.Sprint(trial.Params[paramEvent])
		events = append(events, name)
		m := trial.Metrics
		if !trial.Valid {
			if trial.Subject != "iptables-nth" || name != "reweigh" || !strings.Contains(trial.Notes[0], "3 rules") {
				t.Errorf("%s: not valid: %q", name, trial.Notes)
			}
			continue
		}
		// One that was opened to a backend that left before it had answered fails.
		mayFail := slices.Contains([]string{"remove", "flap", "silent", "reset", "share"}, name)
		unanswered := m[results.UDPUnanswered] > map[string]float64{"silent": math.Inf(1), "reset": strays}[name]
		// Connection tracking goes on by an entry that the port left behind.
		toLeft := m[results.NewToLeft] != 0 && trial.Subject != "iptables-nth"
		if m[results.Broken] != 0 || m[results.NewFailed] != 0 && !mayFail || toLeft || unanswered ||
			m[results.UDPMoved] != 0 {
			t.Errorf("%s: %g broke, %g new ones failed, %g new ones went to what had left, of %g queries %g unanswered, %g moved; notes %q", name,
				m[results.Broken], m[results.NewFailed], m[results.NewToLeft], m[results.UDPQueries],
				m[results.UDPUnanswered], m[results.UDPMoved], trial.Notes)
		}
		// Each was asked over, or opened anew where its backend had left.
		if m[results.Connections] != 40 || m[results.Requests]+m[results.Ended] < 40 {
			t.Errorf("%s: %g connections, %g requests, %g ended; want 40 of each", name, m[results.Connections],
				m[results.Requests], m[results.Ended])
		}
		changes, counted := map[string]float64{"flap": 4, "reload": 2, "silent": 0}[name]
		if !counted {
			changes = 1
		}
		if m[results.Applied] != changes {
			t.Errorf("%s: %g changes, want %g", name, m[results.Applied], changes)
		}
		checkReused(t, name, trial)
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// strays is how many packets a link may lose while it comes up again, on a machine that has
// other work: some 160 were lost where flows stayed with a backend that was gone.
const strays = 5

// checkReused checks what became of clients that use their ports again: whatever a dead
// host costs must be over when its death was noticed, and a drained backend gets none of
// those that it has reset. Connection tracking cannot promise that.
func checkReused(t *testing.T, event string, trial results.Trial) {
	t.Helper()
	m := trial.Metrics
	switch event {
	case "silent":
		_, noticed := m[results.NoticedSeconds]
		_, notices := m[results.BackSeconds]
		if noticed != notices || notices == (trial.Subject == "iptables-nth") {
			t.Errorf("the silence was noticed: %t, and its end: %t", noticed, notices)
		}
		if m[results.LostSYNsAfter]+m[results.ReusedFailedAfter]+m[results.UDPUnansweredAfter] > strays {
			t.Errorf("after the silence was noticed %g SYNs were lost, %g connections failed, %g queries were unanswered",
				m[results.LostSYNsAfter], m[results.ReusedFailedAfter], m[results.UDPUnansweredAfter])
		}
		if m[results.LostSYNsBefore] == 0 || m[results.ReusedConnections] == 0 {
			t.Errorf("before the silence was noticed %g SYNs were lost, and in all %g connections answered",
				m[results.LostSYNsBefore], m[results.ReusedConnections])
		}
	case "reset":
		if m[results.ResetByDrained] == 0 || m[results.CameAgain] < m[results.ResetByDrained] {
			t.Errorf("the drained backend reset %g connections, and %g came again", m[results.ResetByDrained],
				m[results.CameAgain])
		}
		if m[results.AgainToDrained] != 0 && trial.Subject != "iptables-nth" {
			t.Errorf("%g of the connections that came again went to the drained backend", m[results.AgainToDrained])
		}
	}
}

func TestChangeBreaksNothingThroughConntrack(t *testing.T) {
	t.Parallel()
	testenv.Program(t, "iptables-nft")
	events := some("add", "drain", "reweigh")
	if events == nil {
		events = []string{"add", "remove", "drain", "reweigh", "flap", "reload", "undo", "silent", "reset"}
	}
	r := startChangeOf(t, happening(events...), "iptables-nth")
	run, err := r.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	checkEvents(t, run.Trials, events...)
	nothingLeft(t, r)
}

// TestChangeSeesWhatBreaks proves that a figure of 0 means something: one of the
// events does break connections of a server that stays.
func TestChangeSeesWhatBreaks(t *testing.T) {
	testenv.Program(t, "iptables-nft")
	all := changeEvents
	t.Cleanup(func() { changeEvents = all })
	var had uint64
	changeEvents = []changeEvent{{name: "harm", change: func(_ context.Context, c *changeTrial) error {
		server := c.runner.lab.Servers[serverFlapping]
		sockets, err := server.Sockets()
		if err != nil {
			return err
		}
		had = uint64(sockets.Established)
		return server.DestroySockets()
	}}}
	run, err := startChangeOf(t, strings.Replace(smallChange, smallEvents, "", 1), "iptables-nth").run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := run.Trials[0].Metrics
	// Connections that are new may be among those that it had.
	if had == 0 || m[results.BrokenReset] == 0 || m[results.BrokenReset] > float64(had) ||
		m[results.Broken] != m[results.BrokenReset] {
		t.Errorf("of %d connections %g broke, %g by a reset", had, m[results.Broken], m[results.BrokenReset])
	}
	if m[results.Connections] != 40 {
		t.Errorf("%g connections are held again, want 40", m[results.Connections])
	}
}

// TestRestartsAreCounted: a proxy's connections end with its process, and are broken, for their
// backends have stayed.
func TestRestartsAreCounted(t *testing.T) {
	t.Parallel()
	testenv.Program(t, "haproxy")
	text := strings.NewReplacer(smallEvents, "events: [restart, kill], ",
		"silence: 1s", "silence: 1s, restarts: 1, kills: 1, dead: 200ms",
		"name: iptables-nth", "name: haproxy-tcp\n    params: {threads: [1], splice: [\"off\"]}").Replace(smallChange)
	r := startChangeOf(t, text, "haproxy-tcp")
	run, err := r.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, event := range []string{"restart", "kill"} {
		if len(run.Trials) != 2 || run.Trials[i].Params[paramEvent] != event || !run.Trials[i].Valid {
			t.Fatalf("the trials are %+v; want restart and kill", run.Trials)
		}
		if m := run.Trials[i].Metrics; m[results.Broken] < 40 || m[results.Applied] != 1 {
			t.Errorf("%s: %g connections broke by %g changes; want each of 40, by 1", event, m[results.Broken],
				m[results.Applied])
		}
	}
	nothingLeft(t, r)
}

// TestNumberedPacketsAreCounted: of a stream of numbered packets none is missing while nothing
// happens, and some are while no balancer is there.
func TestNumberedPacketsAreCounted(t *testing.T) {
	t.Parallel()
	// Many bursts of numbers fall into the time without a balancer, which is that of a start.
	text := strings.NewReplacer(smallEvents,
		"events: [quiet, stop], quiet: 500ms, numbered_per_second: 4000, ").Replace(smallChange)
	r := startChangeOf(t, text, "jeoul-l2dsr-xdp")
	run, err := r.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Trials) != 2 || !run.Trials[0].Valid || !run.Trials[1].Valid {
		t.Fatalf("the trials are %+v; want quiet and stop", run.Trials)
	}
	quiet, stop := run.Trials[0].Metrics, run.Trials[1].Metrics
	if quiet[results.NumberedSent] == 0 || quiet[results.NumberedMissing] != 0 || quiet[results.NumberedTwice] != 0 {
		t.Errorf("undisturbed, of %g numbered packets %g are missing, and %g came twice; notes %q",
			quiet[results.NumberedSent], quiet[results.NumberedMissing], quiet[results.NumberedTwice],
			run.Trials[0].Notes)
	}
	says := func(note string) bool {
		return strings.HasPrefix(note, "missing in ") && strings.Contains(note, "lost at the balancer, ") &&
			strings.Contains(note, "after change 1 began")
	}
	if stop[results.NumberedBalancer] != stop[results.NumberedMissing] {
		t.Errorf("of %g missing packets %g are said to be lost at the balancer, which was not there",
			stop[results.NumberedMissing], stop[results.NumberedBalancer])
	}
	if stop[results.NumberedMissing] == 0 || stop[results.NumberedMissing] >= stop[results.NumberedSent] ||
		!slices.ContainsFunc(run.Trials[1].Notes, says) {
		t.Errorf("without a balancer, of %g numbered packets %g are missing; notes %q", stop[results.NumberedSent],
			stop[results.NumberedMissing], run.Trials[1].Notes)
	}
	nothingLeft(t, r)
}

// TestFaultsAreNoticed: a backend whose service dies or hangs is noticed by health checks, and once
// it was, no new connection is sent there.
func TestFaultsAreNoticed(t *testing.T) {
	t.Parallel()
	events, tail := some("dies"), 2*time.Second
	if events == nil {
		// who asks a server that hangs waits for that long
		events, tail = []string{"dies", "hangs"}, usualPatience+3*time.Second
	}
	text := strings.NewReplacer("[add, remove, drain, reweigh, flap, reload, undo, silent, reset, share], ",
		"["+strings.Join(events, ", ")+
			"], fault: 60s, check: {interval: 500ms, timeout: 500ms, fall: 2, rise: 1}, ").Replace(smallChange)
	r := startChangeOf(t, text, "jeoul-l2dsr-xdp")
	r.faultTail = tail
	run, err := r.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Trials) != len(events) {
		t.Fatalf("%d trials, want %d", len(run.Trials), len(events))
	}
	for i, event := range events {
		trial := run.Trials[i]
		m := trial.Metrics
		if trial.Params[paramEvent] != event || !trial.Valid {
			t.Errorf("%v: %q", trial.Params, trial.Notes)
			continue
		}
		if _, noticed := m[results.NoticedSeconds]; !noticed {
			t.Errorf("%s: it was not noticed within %g s", event, m[results.FaultSeconds])
		}
		// On a machine that stalls, checks of most backends may fail at once. Then all of them serve, as the panic
		// threshold has it, also the one that has died: what failed meanwhile is no fault.
		panicked := slices.ContainsFunc(trial.Notes, func(note string) bool {
			return strings.Contains(note, "the backend was shown to serve")
		})
		if panicked {
			t.Logf("%s: notes %q", event, trial.Notes)
		}
		if m[results.Broken] != 0 || m[results.NewFailedAfter] != 0 && !panicked || m[results.Ended] == 0 ||
			m[results.InFlight]+m[results.NewFailedBefore] == 0 {
			t.Errorf("%s: %g connections broke, %g ended, new ones failed: %g in flight, %g until it was noticed after %g s, %g later, the last of which began after %g s; notes %q", event,
				m[results.Broken], m[results.Ended], m[results.InFlight], m[results.NewFailedBefore],
				m[results.NoticedSeconds],
				m[results.NewFailedAfter], m[results.LastFailedSeconds], trial.Notes)
		}
	}
	nothingLeft(t, r)
}

// TestReusedPortsFindALivingBackend: a scheduler that remembers every flow meets each port
// again with the entry of the connection before, whose end it has not seen (direct server
// return).
func TestReusedPortsFindALivingBackend(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("[maglev]", "[rr]", smallEvents, "events: [silent, reset], ").Replace(smallChange)
	r := startChangeOf(t, text, "jeoul-l2dsr-xdp")
	run, err := r.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	checkEvents(t, run.Trials, "silent", "reset")
	nothingLeft(t, r)
}

func TestChangeBreaksNothingThroughJeoul(t *testing.T) {
	t.Parallel()
	events := some("remove", "drain", "reweigh", "flap", "reload", "undo", "share")
	if events == nil {
		events = []string{"add", "remove", "drain", "reweigh", "flap", "reload", "undo", "silent", "reset", "share"}
	}
	r := startChangeOf(t, happening(events...), "jeoul-l2dsr-xdp")
	run, err := r.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	checkEvents(t, run.Trials, events...)
	share := run.Trials[len(run.Trials)-1].Metrics
	if share[results.FlowsTried] < 50 || share[results.FlowsOfLeftPercent] == 0 ||
		share[results.FlowsMovedPercent] < share[results.FlowsOfLeftPercent] {
		t.Errorf("of %g flows %g %% moved, and %g %% had the one that left", share[results.FlowsTried],
			share[results.FlowsMovedPercent], share[results.FlowsOfLeftPercent])
	}
	nothingLeft(t, r)
}
