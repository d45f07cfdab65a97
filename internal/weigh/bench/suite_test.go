// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const smallSuite = `name: small
title: A small suite
lab: {clients: 2, servers: 2}
web: {file_bytes: 5120}
repeats: 2
subjects:
  - name: direct
  - name: haproxy-http
    params: {threads: [1, 2]}
loads:
  - kind: ab
    concurrency: [10, 20]
    requests_each: 3
    min_requests: 50
  - name: kept
    kind: wrk
    concurrency: [10]
    duration: 1s
    repeats: 1
quick:
  repeats: 1
  loads:
    - kind: ab
      concurrency: [4]
      duration: 1s
published:
  source: a document
  machine: a machine
  columns: [a, b]
  rows: [[1, 2.50]]
`

func TestParseSuite(t *testing.T) {
	got, err := ParseSuite("small.yaml", []byte(smallSuite))
	if err != nil {
		t.Fatal(err)
	}
	subjects := []Subject{{Name: "direct"}, {Name: "haproxy-http", Params: map[string][]any{"threads": {1, 2}}}}
	want := &Suite{
		Name: "small", Title: "A small suite",
		Long: Form{
			Lab: Size{Clients: 2, Servers: 2}, Web: Web{5120}, Repeats: 2, Subjects: subjects,
			Loads: []Load{
				{Name: "ab", Kind: "ab", Concurrency: []int{10, 20}, RequestsEach: 3, MinRequests: 50},
				{Name: "kept", Kind: "wrk", Concurrency: []int{10}, Duration: time.Second, Repeats: 1},
			},
		},
		Quick: Form{
			Lab: Size{Clients: 2, Servers: 2}, Web: Web{5120}, Repeats: 1, Subjects: subjects,
			Loads: []Load{{Name: "ab", Kind: "ab", Concurrency: []int{4}, Duration: time.Second}},
		},
		Published: &results.Published{Source: "a document", Machine: "a machine",
			Columns: []string{"a", "b"}, Rows: [][]string{{"1", "2.50"}}},
	}
	// The digest is that of the text, and other tests compare it.
	if want.Digest = got.Digest; got.Digest == "" {
		t.Error("the suite has no digest")
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Load{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOurSuites(t *testing.T) {
	files, err := filepath.Glob("../../../suites/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d suites, error %v", len(files), err)
	}
	for _, file := range files {
		if _, err := LoadSuite(file); err != nil {
			t.Error(err)
		}
	}
}

func TestParseSuiteErrors(t *testing.T) {
	for name, tc := range map[string]struct{ from, to, says string }{
		"unknown key":         {"repeats: 2", "repeat: 2", "s.yaml:5: repeat: unknown key repeat"},
		"unknown key, nested": {"{clients: 2,", "{clients: 2, switches: 1,", "s.yaml:3: lab: unknown key switches"},
		"unknown key, quick": {"  repeats: 1\n  loads:", "  repeats: 1\n  load:",
			"s.yaml:22: quick.load: unknown key load"},
		"duplicate key": {"repeats: 2", "repeats: 2\nrepeats: 3",
			`s.yaml:6: repeats: mapping key "repeats" already defined at line 5`},
		"wrong type": {"repeats: 2", "repeats: two", "s.yaml:5: repeats: `two` is not a whole number"},
		"wrong duration": {"duration: 1s\n    repeats", "duration: soon\n    repeats",
			"s.yaml:18: loads[1].duration: `soon` is not a duration"},
		"unknown subject": {"name: direct", "name: driect",
			`s.yaml:7: subjects[0].name: unknown subject "driect"; use direct, routed, `},
		"twice": {"name: direct", "name: haproxy-http\n    params: {threads: [1]}",
			"s.yaml:9: subjects[1].name: haproxy-http stands here twice"},
		"unknown parameter": {"{threads: [1, 2]}", "{threads: [1], queues: [1]}",
			"s.yaml:9: subjects[1].params.queues: unknown parameter; haproxy-http has threads"},
		"parameter of direct": {"name: direct", "name: direct\n    params: {threads: [1]}",
			"subjects[0].params.threads: unknown parameter; direct has none"},
		"no value": {"{threads: [1, 2]}", "{}",
			"subjects[1].params.threads: haproxy-http needs a list of values for threads"},
		"wrong value": {"[1, 2]", "[1, many]",
			"s.yaml:9: subjects[1].params.threads[1]: not a possible value: many"},
		"value twice": {"[1, 2]", "[1, 1]", "subjects[1].params.threads[1]: 1 stands in the list twice"},
		"unknown kind": {"kind: wrk", "kind: hey",
			`s.yaml:16: loads[1].kind: unknown kind of load "hey"; use ab or wrk or iperf3`},
		"loads alike": {"name: kept", "name: ab", "s.yaml:15: loads[1]: two loads are called ab"},
		"no end": {"    requests_each: 3\n    min_requests: 50\n", "",
			"s.yaml:11: loads[0]: give one of duration, requests and requests_each"},
		"two ends": {"requests_each: 3", "requests_each: 3\n    duration: 1s", "loads[0]: give one of"},
		"counted wrk": {"duration: 1s\n    repeats", "requests: 100\n    repeats",
			"loads[1]: wrk cannot stop after a number of requests"},
		"fractional": {"duration: 1s\n    repeats", "duration: 1500ms\n    repeats",
			"s.yaml:18: loads[1].duration: 1.5s is not possible; use whole seconds"},
		"too few connections": {"[10, 20]", "[1, 20]",
			"s.yaml:12: loads[0].concurrency[0]: 1 is not possible; use 2 (one for each client)"},
		"in quick": {"[4]", "[1]", "s.yaml:24: quick.loads[0].concurrency[0]: 1 is not possible"},
		"no clients": {"{clients: 2,", "{clients: 0,",
			"s.yaml:3: lab.clients: 0 is not possible; use 1 to 99"},
		"published": {"[[1, 2.50]]", "[[1]]",
			"s.yaml:30: published.rows[0]: has 1 cells, but there are 2 columns"},
		"baseline": {"title:", "baseline: routed\ntitle:",
			"s.yaml:2: baseline: routed is none of the subjects"},
		"pinned": {"duration: 1s\n    repeats", "duration: 1s\n    pinned: true\n    repeats",
			"loads[1]: pinned goes with loads that transfer in bulk, and offloads with those, transactions and dnsperf; not with wrk"},
		"bulk over HTTP": {"kind: wrk", "kind: iperf3", "subjects[1].name: haproxy-http speaks HTTP only"},
		"counted crr": {"kind: wrk\n    concurrency: [10]\n    duration: 1s",
			"kind: tcp_crr\n    concurrency: [10]\n    requests: 100",
			"loads[1]: tcp_crr cannot stop after a number of requests"},
		"short rr": {"kind: wrk\n    concurrency: [10]\n    duration: 1s",
			"kind: tcp_rr\n    concurrency: [10]\n    duration: 1ms",
			"s.yaml:18: loads[1].duration: 1ms is not possible; use 100ms to 1h0m0s"},
		"pinned rr": {"kind: wrk\n    concurrency: [10]",
			"kind: tcp_rr\n    pinned: true\n    concurrency: [10]",
			"loads[1]: pinned goes with loads that transfer in bulk; a single connection of tcp_rr"},
		"crr over HTTP": {"kind: wrk", "kind: tcp_crr",
			"s.yaml:8: subjects[1].name: haproxy-http speaks HTTP only"},
		"crr over TLS": {"kind: wrk\n    concurrency: [10]",
			"kind: tcp_crr\n    tls: true\n    concurrency: [10]",
			"s.yaml:17: loads[1].tls: goes with ab and wrk, not with tcp_crr"},
		"bulk over TLS":   {"kind: wrk", "kind: iperf3\n    tls: true", "s.yaml:17: loads[1].tls: goes with ab and wrk, not with iperf3"},
		"tls, not a word": {"kind: wrk", "kind: wrk\n    tls: perhaps", "s.yaml:17: loads[1].tls: "},
		"netperf for wrk": {"kind: wrk", "kind: wrk\n    generator: netperf",
			"s.yaml:17: loads[1].generator: goes with tcp_crr and tcp_rr, not with wrk"},
		"other generator": {"kind: wrk\n    concurrency: [10]",
			"kind: tcp_rr\n    generator: qperf\n    concurrency: [1]",
			`s.yaml:17: loads[1].generator: unknown generator "qperf"; use netperf`},
		"netperf, streams": {"kind: wrk", "kind: tcp_rr\n    generator: netperf",
			"s.yaml:18: loads[1].concurrency: through a balancer netperf is used with one connection only"},
		"netperf, duration": {"kind: wrk\n    concurrency: [10]\n    duration: 1s",
			"kind: tcp_rr\n    generator: netperf\n    concurrency: [1]\n    duration: 1500ms",
			"s.yaml:19: loads[1].duration: 1.5s is not possible; netperf knows whole seconds only"},
		"rate of ab": {"    requests_each: 3\n", "    requests_each: 3\n    rate: [5]\n",
			"s.yaml:14: loads[0].rate: goes with paced, not with ab"},
		"paced, no rate": {"kind: wrk", "kind: paced",
			"s.yaml:15: loads[1]: give one of rate, a list of requests a second, and search"},
		"paced, both": {"kind: wrk", "kind: paced\n    rate: [5]\n    search: {from: 5, to: 6, p99_ms: 1}",
			"s.yaml:15: loads[1]: give one of rate"},
		"paced, rates": {"kind: wrk", "kind: paced\n    rate: [5, 1]",
			"s.yaml:17: loads[1].rate[1]: 1 is not possible; use 2 (one a second for each client) to 1000000"},
		"paced, rate twice": {"kind: wrk", "kind: paced\n    rate: [5, 5]",
			"loads[1].rate[1]: 5 stands in the list twice"},
		"paced, counted": {"kind: wrk", "kind: paced\n    rate: [5]\n    requests: 5",
			"loads[1]: paced takes no requests"},
		"search, from": {"kind: wrk", "kind: paced\n    search: {from: 1, to: 6, p99_ms: 1}",
			"s.yaml:17: loads[1].search.from: 1 is not possible"},
		"search, to": {"kind: wrk", "kind: paced\n    search: {from: 6, to: 6, p99_ms: 1}",
			"s.yaml:17: loads[1].search.to: 6 is not possible; use more than from"},
		"search, bound": {"kind: wrk", "kind: paced\n    search: {from: 5, to: 6}",
			"s.yaml:17: loads[1].search.p99_ms: 0 is not possible; use more than 0 to 3000"},
		"search, within": {"kind: wrk", "kind: paced\n    search: {from: 5, to: 6, p99_ms: 1, within: 99}",
			"loads[1].search.within: 99 is not possible; use 1 to 50 per cent"},
		"search, key": {"kind: wrk", "kind: paced\n    search: {form: 5}",
			"s.yaml:17: loads[1].search: unknown key form"},
		"no file":       {"web: {file_bytes: 5120}\n", "", "web.file_bytes: 0 is not possible"},
		"not a suite":   {smallSuite, "- a\n- b\n", "not a suite; it needs at least name"},
		"empty":         {smallSuite, "", "the file is empty; it needs at least name"},
		"not YAML":      {"title:", "\ttitle:", "s.yaml:"},
		"two documents": {"published:", "---\nname: x\npublished:", "second YAML document"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(smallSuite, tc.from, tc.to, 1)
			if text == smallSuite {
				t.Fatal("the test changes nothing")
			}
			_, err := ParseSuite("s.yaml", []byte(text))
			var problems yamlfile.Problems
			if !errors.As(err, &problems) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v\nwant it to say %s", err, tc.says)
			}
		})
	}
}

func TestOnly(t *testing.T) {
	suite, err := ParseSuite("small.yaml", []byte(smallSuite))
	if err != nil {
		t.Fatal(err)
	}
	form, err := suite.Long.Only([]string{"haproxy-http"}, nil)
	if err != nil || len(form.Subjects) != 1 || form.Subjects[0].Name != "haproxy-http" {
		t.Errorf("got %v, error %v", form.Subjects, err)
	}
	if len(suite.Long.Subjects) != 2 {
		t.Error("Only changed the form it was asked of")
	}
	if _, err := suite.Long.Only([]string{"nginx"}, nil); err == nil ||
		!strings.Contains(err.Error(), "it has direct, haproxy-http") {
		t.Errorf("an unknown subject: got %v, want the known ones", err)
	}
	form, err = suite.Long.Only(nil, []string{"kept"})
	if err != nil || len(form.Loads) != 1 || form.Loads[0].Name != "kept" || len(suite.Long.Loads) != 2 {
		t.Errorf("got %v of %v, error %v", form.Loads, suite.Long.Loads, err)
	}
	if _, err := suite.Long.Only(nil, []string{"ab", "nosuch"}); err == nil ||
		!strings.Contains(err.Error(), "--loads nosuch: the suite has none of that name; it has ab, kept") {
		t.Errorf("an unknown load: got %v, want the known ones", err)
	}
}

func FuzzParseSuite(f *testing.F) {
	f.Add([]byte(smallSuite))
	f.Add([]byte(wireSuite))
	ours, err := os.ReadFile("../../../suites/l2dsr-bmt.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ours)
	f.Fuzz(func(t *testing.T, data []byte) {
		suite, err := ParseSuite("f.yaml", data)
		if err != nil {
			return
		}
		for _, form := range []Form{suite.Long, suite.Quick} {
			if form.Lab.Clients < 1 || len(form.Subjects) == 0 || len(form.Loads) == 0 || form.Repeats < 1 {
				t.Errorf("accepted %+v", form)
			}
		}
	})
}
