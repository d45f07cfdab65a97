// SPDX-License-Identifier: Apache-2.0

package change

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjects"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// changePoint returns a point of a change experiment on paper.
func changePoint(t *testing.T, name string, params subject.Params, connections int) bench.Point {
	t.Helper()
	s, ok := subjects.Find(name)
	if !ok {
		t.Fatalf("no subject %s", name)
	}
	return bench.Point{Subject: s, Params: params, Concurrency: connections, Experiment: kind{},
		By:   bench.Load{}.With(settings{Changes{Ports: 1000}}),
		Form: bench.Form{Lab: bench.Size{Clients: 5, Servers: 25}}}
}

func TestChangeHoldsWhatItsSubjectCanCarry(t *testing.T) {
	limits := probe.Limits{OpenFiles: 20_000, Cores: 2, LocalPorts: 64_512}
	haproxy := subject.Params{"threads": 2, "splice": "off"}
	for _, tc := range []struct {
		point bench.Point
		want  int
		says  string
	}{
		{changePoint(t, "iptables-nth", nil, 10_000), 10_000, ""},
		{changePoint(t, "haproxy-tcp", haproxy, 2000), 2000, ""},
		// Of the 9,750 connections that it can carry, one in 21 is reserved for new ones.
		{changePoint(t, "haproxy-tcp", haproxy, 10_000), 9200,
			"9200 connections and not 10000, for 10500 connections at once: HAProxy needs two open files"},
	} {
		got, note := connections(tc.point, limits)
		if got != tc.want || (note == "") != (tc.says == "") || !strings.HasPrefix(note, tc.says) {
			t.Errorf("%s: %d connections, note %q; want %d, %q", tc.point.Subject.Name(), got, note, tc.want, tc.says)
		}
	}
}

func TestChangeSkipReasons(t *testing.T) {
	limits := probe.Limits{OpenFiles: 2000, Cores: 1, LocalPorts: 3000}
	for _, tc := range []struct {
		point bench.Point
		says  string
	}{
		{changePoint(t, "iptables-nth", nil, 5000), ""},
		{changePoint(t, "iptables-nth", nil, 10_000), "2000 connections per client: it needs 2200 open files"},
		// It holds as many as it can.
		{changePoint(t, "haproxy-tcp", subject.Params{"threads": 1, "splice": "off"}, 5000), ""},
		{changePoint(t, "haproxy-tcp", subject.Params{"threads": 2, "splice": "off"}, 100),
			"2 threads: this machine has 1 cores"},
	} {
		if got := Kind.SkipReason(tc.point, limits); (got == "") != (tc.says == "") ||
			!strings.HasPrefix(got, tc.says) {
			t.Errorf("%s, %d connections: skip reason %q, want %q", tc.point.Subject.Name(), tc.point.Concurrency,
				got, tc.says)
		}
	}
	limits.OpenFiles, limits.LocalPorts = 20_000, 2500
	if got := Kind.SkipReason(changePoint(t, "iptables-nth", nil, 10_000), limits); !strings.Contains(got,
		"2500 local ports") {
		t.Errorf("skip reason %q, want one about ports", got)
	}
}

func TestCompareFlows(t *testing.T) {
	flow := func(port int) live.Flow { return live.Flow{Client: "client01", Port: port} }
	before := map[live.Flow]string{flow(1): "a", flow(2): "a", flow(3): "b", flow(4): "c", flow(5): "c"}
	// Port 5 was in use the second time, port 6 the first time.
	after := map[live.Flow]string{flow(1): "b", flow(2): "c", flow(3): "b", flow(4): "b", flow(6): "b"}
	if got, want := compare(before, after, "a"), (moves{tried: 4, moved: 3, ofLeft: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// paperTrial is a change experiment in a laboratory on paper. web01 has left and web02 drains.
func paperTrial(t *testing.T) *changeTrial {
	l := &lab.Lab{}
	for i := range 6 {
		l.Servers = append(l.Servers, &lab.Host{Name: fmt.Sprintf("web%02d", i+1)})
	}
	return &changeTrial{
		runner: &bench.Runner{Lab: l}, trial: bench.Trial{Point: changePoint(t, "iptables-nth", nil, 100)},
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
		Queries: 90, Unanswered: 6, UDPMoved: map[string]uint64{"web01": 1, "web04": 2, "web05": 4},
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

// TestChangeTellsWhoIsOlderThanAnAbsence: connections that are older than their server's absence end late, and younger
// ones break.
func TestChangeTellsWhoIsOlderThanAnAbsence(t *testing.T) {
	c := paperTrial(t)
	c.lastRemoved = map[string]time.Time{"web04": time.Now().Add(-time.Minute)}
	sample := func(server string, age time.Duration) live.Break {
		return live.Break{Server: server, Cause: live.Reset, Age: age}
	}
	counts := live.Counts{
		Broken: map[string]map[live.Cause]uint64{"web03": {live.Reset: 1}, "web04": {live.Reset: 4}},
		Breaks: []live.Break{sample("web03", time.Hour), sample("web04", time.Hour), sample("web04", time.Second)},
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

// TestSilenceIsSplitAtItsNotice: packets sent before the subject noticed are counted separately from those that it sent
// to a dead host later. If a subject never noticed, all packets count as before.
func TestSilenceIsSplitAtItsNotice(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	moments := func(seconds ...int) (m live.Timestamps) {
		for _, s := range seconds {
			m = append(m, at(s).UnixMicro())
		}
		return m
	}
	counts := live.Counts{LostSYNs: moments(11, 12, 14, 16), ReusedLostAt: moments(11), LostQueries: moments(13, 17)}
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
		s := silence{cut: at(10), noticed: tc.noticed, restored: at(18)}
		if !tc.noticed.IsZero() {
			s.recoveredAt = at(19)
		}
		got := map[string]float64{}
		s.write(counts, true, got)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFaultIsSplitAtItsNotice: connections begun before the fault, those until the subject noticed, and later ones are
// counted separately.
func TestFaultIsSplitAtItsNotice(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	moments := func(seconds ...int) (m live.Timestamps) {
		for _, s := range seconds {
			m = append(m, at(s).UnixMicro())
		}
		return m
	}
	counts := live.Counts{LostNew: moments(9, 11, 14), ReusedLostAt: moments(8, 12, 15), LostQueries: moments(11, 13)}
	for name, tc := range map[string]struct {
		fault fault
		want  map[string]float64
	}{
		"noticed": {fault{began: at(10), noticed: at(13), repairedAt: at(20), recoveredAt: at(22)}, map[string]float64{
			results.FaultSeconds: 10, results.NoticedSeconds: 3, results.BackSeconds: 2,
			results.InFlight: 2, results.NewFailedBefore: 2, results.NewFailedAfter: 2, results.LastFailedSeconds: 5,
			results.UDPUnansweredBefore: 1, results.UDPUnansweredAfter: 1}},
		"never": {fault{began: at(10), repairedAt: at(20)}, map[string]float64{
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

// TestFaultsTurnsAreNoted: if a subject let the backend serve during the fault, the results say when.
func TestFaultsTurnsAreNoted(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	f := fault{began: at(10), transitions: []time.Time{at(12), at(14), at(17)}}
	want := []string{"from 2.0 s after the fault began to 4.0 s, the backend was shown to serve",
		"from 7.0 s after the fault began to the end of the fault, the backend was shown to serve"}
	if diff := cmp.Diff(want, f.notes()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestComingAgainIsToldByServer(t *testing.T) {
	c := paperTrial(t)
	c.reconnected = &reconnections{openBefore: 9}
	got := results.Trial{Metrics: map[string]float64{}}
	c.writeReused(live.Counts{ReusedAnswered: 50, PortsInUse: 1, LostSYNs: live.Timestamps{1, 2},
		ReusedLostAt: live.Timestamps{1}, Reconnected: map[string]uint64{"web02": 3, "web04": 5}}, &got)
	want := map[string]float64{results.ReusedConnections: 50, results.ReusedTaken: 1, results.LostSYNs: 2,
		results.ReusedFailed:   1,
		results.ResetByDrained: 9, results.CameAgain: 8, results.AgainToDrained: 3}
	if diff := cmp.Diff(want, got.Metrics); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
