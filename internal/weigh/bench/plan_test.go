// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/bulk"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

var roomy = probe.Limits{OpenFiles: 1_000_000, Cores: 64, LocalPorts: 60_000}

func TestPlanInterleavesRepeats(t *testing.T) {
	form := Form{
		Lab: Size{Clients: 2, Servers: 2}, Web: Web{5120}, Repeats: 2,
		Subjects: []Subject{{Name: "direct"}, {Name: "haproxy-http", Params: map[string][]any{"threads": {1, 2}}}},
		Loads: []Load{
			{Name: "ab", Kind: "ab", Concurrency: []int{10}, RequestsEach: 3},
			{Name: "wrk", Kind: "wrk", Concurrency: []int{10}, Duration: time.Second, Repeats: 1},
		},
	}
	var got []string
	for _, trial := range Plan(form, roomy, Absent{}) {
		got = append(got, NameOf(trial))
	}
	want := []string{
		"direct, ab, concurrency 10, repeat 1",
		"direct, wrk, concurrency 10, repeat 1",
		"haproxy-http, threads 1, ab, concurrency 10, repeat 1",
		"haproxy-http, threads 1, wrk, concurrency 10, repeat 1",
		"haproxy-http, threads 2, ab, concurrency 10, repeat 1",
		"haproxy-http, threads 2, wrk, concurrency 10, repeat 1",
		"direct, ab, concurrency 10, repeat 2",
		"haproxy-http, threads 1, ab, concurrency 10, repeat 2",
		"haproxy-http, threads 2, ab, concurrency 10, repeat 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if times := len(Plan(form.Repeated(3), roomy, Absent{})); times != 18 || form.Loads[1].Repeats != 1 {
		t.Errorf("6 points three times each are %d trials, and the form has now %d repeats of a load", times,
			form.Loads[1].Repeats)
	}
}

func TestPlanNamesSkipReasons(t *testing.T) {
	suite, err := LoadSuite("../../../suites/l2dsr-bmt.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// The limits of the machine that the suite first ran on.
	limits := probe.Limits{OpenFiles: 20_000, Cores: 2, LocalPorts: 64_512}
	skipReasons := map[string]string{}
	for _, trial := range Plan(suite.Long, limits, Absent{}) {
		if trial.SkipReason != "" {
			skipReasons[NameOf(trial)] = trial.SkipReason
		}
		// A direct path and a forwarder need no more than clients and servers do.
		if trial.SkipReason != "" && trial.Subject.Name() != "haproxy-http" {
			t.Errorf("%s: %s", NameOf(trial), trial.SkipReason)
		}
	}
	for trial, says := range map[string]string{
		"haproxy-http, threads 4, ab, concurrency 1000, repeat 1":  "2 cores",
		"haproxy-http, threads 8, wrk, concurrency 250, repeat 1":  "2 cores",
		"haproxy-http, threads 1, ab, concurrency 30000, repeat 1": "two open files",
		"haproxy-http, threads 2, ab, concurrency 9000, repeat 1":  "",
	} {
		if got := skipReasons[trial]; (says == "") != (got == "") || !strings.Contains(got, says) {
			t.Errorf("%s: skip reason %q, want it to say %q", trial, got, says)
		}
	}
}

func TestClientsAndServersHaveLimitsToo(t *testing.T) {
	form := Form{Lab: Size{Clients: 1, Servers: 1}, Web: Web{5120}, Repeats: 1, Subjects: []Subject{{Name: "direct"}},
		Loads: []Load{{Name: "ab", Kind: "ab", Concurrency: []int{500, 5000, 15_000, 30_000}, Requests: 30_000}}}
	want := map[int]string{500: "", 5000: "local ports", 15_000: "open files", 30_000: "ab can hold"}
	for _, trial := range Plan(form, probe.Limits{OpenFiles: 10_000, Cores: 2, LocalPorts: 4000}, Absent{}) {
		says := want[trial.Concurrency]
		if (says == "") != (trial.SkipReason == "") || !strings.Contains(trial.SkipReason, says) {
			t.Errorf("%d connections: skip reason %q, want it to say %q", trial.Concurrency, trial.SkipReason, says)
		}
	}
	form.Lab.Clients = 20
	form.Loads[0].Concurrency = []int{19_000}
	if got := Plan(form, probe.Limits{OpenFiles: 10_000, Cores: 2, LocalPorts: 60_000},
		Absent{})[0].SkipReason; !strings.Contains(got, "per web server") {
		t.Errorf("19000 connections to one server: skip reason %q", got)
	}
}

func TestSharesAddUp(t *testing.T) {
	point := Point{Concurrency: 17, Requests: 100, Form: Form{Lab: Size{Clients: 5, Servers: 1}}}
	concurrency, requests := 0, 0
	for i := range 5 {
		share := point.Share(i)
		concurrency += share.Concurrency
		requests += share.Requests
	}
	if concurrency != 17 || requests != 100 {
		t.Errorf("the clients' shares are %d connections and %d requests, want 17 and 100", concurrency, requests)
	}
}

// bulkForm returns a form with bulk loads.
func bulkForm(streams ...int) Form {
	return Form{Lab: Size{Clients: 2, Servers: 2}, Repeats: 1,
		Subjects: []Subject{{Name: "routed"}, {Name: "iptables-nth"},
			{Name: "haproxy-tcp", Params: map[string][]any{"threads": {1}, "splice": {"off"}}}},
		Loads: []Load{{Name: "bulk", Kind: "iperf3", Concurrency: streams, Duration: time.Second, Pinned: true,
			Offloads: true}}}
}

func TestPlanNamesWhatIsAbsent(t *testing.T) {
	for name, tc := range map[string]struct {
		absent Absent
		want   map[string]string
	}{
		"a subject": {Absent{Subjects: map[string]string{"iptables-nth": "no iptables"}},
			map[string]string{"routed": "", "iptables-nth": "no iptables", "haproxy-tcp": ""}},
		"the load": {Absent{Kinds: map[string]string{"iperf3": "no iperf3"}},
			map[string]string{"routed": "no iperf3", "iptables-nth": "no iperf3", "haproxy-tcp": "no iperf3"}},
	} {
		got := map[string]string{}
		for _, trial := range Plan(bulkForm(2), roomy, tc.absent) {
			got[trial.Subject.Name()] = trial.SkipReason
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestBulkHasLimitsToo(t *testing.T) {
	form := bulkForm(2, 300)
	form.Subjects = form.Subjects[:1]
	want := map[int]string{2: "", 300: "iperf3 can have 128"}
	for _, trial := range Plan(form, roomy, Absent{}) {
		says := want[trial.Concurrency]
		if (says == "") != (trial.SkipReason == "") || !strings.Contains(trial.SkipReason, says) {
			t.Errorf("%d streams: skip reason %q, want it to say %q", trial.Concurrency, trial.SkipReason, says)
		}
	}
	limits := roomy
	limits.Cores = 3
	if got := Plan(form, limits, Absent{})[0].SkipReason; !strings.Contains(got, "are 4, and this machine has 3") {
		t.Errorf("pinned on three cores: skip reason %q", got)
	}
}

func TestBulkPoint(t *testing.T) {
	point := Plan(bulkForm(5), roomy, Absent{})[0].Point
	want := map[string]any{"streams": 5, "pinned": "yes", "offloads": "yes", "duration_seconds": 1, "clients": 2,
		"backends": 2}
	if diff := cmp.Diff(want, point.AllParams()); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	if got := *point.CPUs(1); got.Client != 2 || got.Server != 3 {
		t.Errorf("the second client has cores %+v", got)
	}
}

func TestBulkServicesHaveOneServerEach(t *testing.T) {
	servers := []*lab.Host{{Name: "web01"}, {Name: "web02"}}
	l := &lab.Lab{Clients: make([]*lab.Host, 3), Servers: servers}
	var got []string
	for _, service := range bulk.Kind.Services(l, Point{}) {
		if len(service.Servers) != 1 {
			t.Fatalf("port %d has %d servers", service.Port, len(service.Servers))
		}
		got = append(got, fmt.Sprint(service.Port, " ", service.Servers[0].Name))
	}
	if diff := cmp.Diff([]string{"5201 web01", "5202 web02", "5203 web01"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
