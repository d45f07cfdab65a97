// SPDX-License-Identifier: Apache-2.0

package bench_test

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
	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/change"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// happening returns a suite of the small experiment with these events.
func happening(events ...string) string {
	return strings.Replace(smallChange, smallEvents, "events: ["+strings.Join(events, ", ")+"], ", 1)
}

// smallEvents are the events of a suite of the small experiment.
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

// startChangeOf returns a runner of a change experiment with some of its subjects, and builds our own binary for it.
func startChangeOf(t *testing.T, text string, subjects ...string) *Runner {
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
		name := fmt.Sprint(trial.Params["event"])
		events = append(events, name)
		m := trial.Metrics
		if !trial.Valid {
			if trial.Subject != "iptables-nth" || name != "reweigh" || !strings.Contains(trial.Notes[0], "3 rules") {
				t.Errorf("%s: not valid: %q", name, trial.Notes)
			}
			continue
		}
		// A connection fails if its backend left before the first answer.
		mayFail := slices.Contains([]string{"remove", "flap", "silent", "reset", "share"}, name)
		unanswered := m[results.UDPUnanswered] > map[string]float64{"silent": math.Inf(1), "reset": maxUnanswered}[name]
		// Connection tracking uses the entry that an earlier connection from the port left.
		toLeft := m[results.NewToLeft] != 0 && trial.Subject != "iptables-nth"
		if m[results.Broken] != 0 || m[results.NewFailed] != 0 && !mayFail || toLeft || unanswered ||
			m[results.UDPMoved] != 0 {
			t.Errorf("%s: %g broke, %g new ones failed, %g new ones went to what had left, of %g queries %g unanswered, %g moved; notes %q", name,
				m[results.Broken], m[results.NewFailed], m[results.NewToLeft], m[results.UDPQueries],
				m[results.UDPUnanswered], m[results.UDPMoved], trial.Notes)
		}
		// Each connection was used, or opened again if its backend had left.
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

// maxUnanswered is the number of packets that a link may lose while it comes up again, on a busy machine. Some 160 were
// lost when flows stayed with a backend that was gone.
const maxUnanswered = 5

// checkReused checks the counts of clients that reuse their ports. Losses by a dead host must end when its death is
// noticed, and a drained backend gets no connection that it has reset. Connection tracking cannot guarantee that.
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
		if m[results.LostSYNsAfter]+m[results.ReusedFailedAfter]+m[results.UDPUnansweredAfter] > maxUnanswered {
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
	run, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	checkEvents(t, run.Trials, events...)
	nothingLeft(t, r)
}

// TestChangeSeesWhatBreaks proves that a count of 0 is meaningful: one of the events does break connections of a server
// that stays.
func TestChangeSeesWhatBreaks(t *testing.T) {
	testenv.Program(t, "iptables-nft")
	var had uint64
	t.Cleanup(change.InPlaceOfEvents("harm", func(_ context.Context, r *Runner) error {
		server := r.Lab.Servers[change.Flapping]
		sockets, err := server.Sockets()
		if err != nil {
			return err
		}
		had = uint64(sockets.Established)
		return server.DestroySockets()
	}))
	run, err := startChangeOf(t, strings.Replace(smallChange, smallEvents, "", 1), "iptables-nth").Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := run.Trials[0].Metrics
	// New connections may be among those of the server.
	if had == 0 || m[results.BrokenReset] == 0 || m[results.BrokenReset] > float64(had) ||
		m[results.Broken] != m[results.BrokenReset] {
		t.Errorf("of %d connections %g broke, %g by a reset", had, m[results.Broken], m[results.BrokenReset])
	}
	if m[results.Connections] != 40 {
		t.Errorf("%g connections are held again, want 40", m[results.Connections])
	}
}

// TestRestartsAreCounted: a proxy's connections end with its process. They count as broken, because their backends have
// stayed.
func TestRestartsAreCounted(t *testing.T) {
	t.Parallel()
	testenv.Program(t, "haproxy")
	text := strings.NewReplacer(smallEvents, "events: [restart, kill], ",
		"silence: 1s", "silence: 1s, restarts: 1, kills: 1, dead: 200ms",
		"name: iptables-nth", "name: haproxy-tcp\n    params: {threads: [1], splice: [\"off\"]}").Replace(smallChange)
	r := startChangeOf(t, text, "haproxy-tcp")
	run, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, event := range []string{"restart", "kill"} {
		if len(run.Trials) != 2 || run.Trials[i].Params["event"] != event || !run.Trials[i].Valid {
			t.Fatalf("the trials are %+v; want restart and kill", run.Trials)
		}
		if m := run.Trials[i].Metrics; m[results.Broken] < 40 || m[results.Applied] != 1 {
			t.Errorf("%s: %g connections broke by %g changes; want each of 40, by 1", event, m[results.Broken],
				m[results.Applied])
		}
	}
	nothingLeft(t, r)
}

// TestNumberedPacketsAreCounted: no packet of a numbered stream is missing while nothing happens, and some are missing
// while there is no balancer.
func TestNumberedPacketsAreCounted(t *testing.T) {
	t.Parallel()
	// Many bursts of numbers are sent during the time without a balancer, which is the time of a start.
	text := strings.NewReplacer(smallEvents,
		"events: [quiet, stop], quiet: 500ms, numbered_per_second: 4000, ").Replace(smallChange)
	r := startChangeOf(t, text, "jeoul-l2dsr-xdp")
	run, err := r.Run(t.Context())
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

// TestFaultsAreNoticed: health checks notice a backend whose service dies or hangs. After that, the backend gets no new
// connections.
func TestFaultsAreNoticed(t *testing.T) {
	t.Parallel()
	events, tail := some("dies"), 2*time.Second
	if events == nil {
		// A client of a hanging server waits that long.
		events, tail = []string{"dies", "hangs"}, change.UsualTimeout+3*time.Second
	}
	text := strings.NewReplacer("[add, remove, drain, reweigh, flap, reload, undo, silent, reset, share], ",
		"["+strings.Join(events, ", ")+
			"], fault: 60s, check: {interval: 500ms, timeout: 500ms, fall: 2, rise: 1}, ").Replace(smallChange)
	r := startChangeOf(t, text, "jeoul-l2dsr-xdp")
	change.EndFaults(r, tail)
	run, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Trials) != len(events) {
		t.Fatalf("%d trials, want %d", len(run.Trials), len(events))
	}
	for i, event := range events {
		trial := run.Trials[i]
		m := trial.Metrics
		if trial.Params["event"] != event || !trial.Valid {
			t.Errorf("%v: %q", trial.Params, trial.Notes)
			continue
		}
		if _, noticed := m[results.NoticedSeconds]; !noticed {
			t.Errorf("%s: it was not noticed within %g s", event, m[results.FaultSeconds])
		}
		// On a machine that stalls, checks of most backends may fail at once. Then all of them serve, because of the
		// panic threshold, including the one that has died. Failures during that time are no fault.
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

// TestReusedPortsFindALivingBackend: a scheduler that stores every flow sees each port again while it has the entry of
// the previous connection, whose end it has not seen (direct server return).
func TestReusedPortsFindALivingBackend(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("[maglev]", "[rr]", smallEvents, "events: [silent, reset], ").Replace(smallChange)
	r := startChangeOf(t, text, "jeoul-l2dsr-xdp")
	run, err := r.Run(t.Context())
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
	run, err := r.Run(t.Context())
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
