// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/web"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjects"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const tinyTLS = `name: tiny-tls
title: A tiny suite over TLS
lab: {clients: 1, servers: 2}
web: {file_bytes: 5120}
repeats: 1
subjects:
  - name: direct
  - name: haproxy-http
    params: {threads: [1]}
  - name: haproxy-tcp
    params: {threads: [1], splice: ["off"]}
  - name: nginx-http
    params: {threads: [1]}
  - name: nginx-stream
    params: {threads: [1]}
  - name: jeoul-l2dsr-xdp
    params: {scheduler: [rr]}
  - name: jeoul-nat-tc
    params: {scheduler: [rr]}
  - name: jeoul-proxy
    params: {threads: [1]}
loads:
  - name: https
    kind: ab
    tls: true
    concurrency: [4]
    requests: 40
  - name: plain
    kind: ab
    concurrency: [4]
    requests: 40
`

// TestRunTLS sends requests to a subject that terminates TLS, to one that forwards it, and, for the same subjects,
// without TLS.
func TestRunTLS(t *testing.T) {
	testenv.Target(t, benchTarget)
	t.Parallel()
	begin(t)
	testenv.Program(t, "nginx")
	testenv.Program(t, "ab")
	r := loadsRunner(t, "tiny.yaml", tinyTLS, buildJeoul(t), some("https"),
		some("haproxy-http", "jeoul-nat-tc", "jeoul-proxy")...)
	run := runAndLoad(t, r)
	for _, trial := range run.Trials {
		if r.Absent.Subjects[trial.Subject] != "" {
			continue
		}
		m := trial.Metrics
		if !trial.Valid || m[results.Requests] != 40 || (trial.Params["tls"] == "yes") != (trial.Load == "https") {
			t.Errorf("%s, %s: valid %v, parameters %v, metrics %v, notes %q", trial.Subject, trial.Load, trial.Valid,
				trial.Params, m, trial.Notes)
		}
		if trial.Subject != "haproxy-http" && trial.Subject != "jeoul-proxy" {
			continue
		}
		ends := slices.ContainsFunc(trial.Notes, func(note string) bool {
			return strings.Contains(note, "it ends its clients' TLS")
		})
		if ends != (trial.Load == "https") {
			t.Errorf("%s: notes %q", trial.Load, trial.Notes)
		}
	}
	nothingLeft(t, r)
}

// deaf is an HTTP proxy without support for TLS.
type deaf struct{ subject.Subject }

func (deaf) Name() string                                        { return "deaf" }
func (deaf) Can() subject.Abilities                              { return subject.Abilities{HTTPOnly: true} }
func (deaf) SkipReason(subject.Params, int, probe.Limits) string { return "" }

// TestTLSSkipReason checks the skip reason of a proxy that cannot terminate TLS.
func TestTLSSkipReason(t *testing.T) {
	form := Form{Lab: Size{Clients: 1, Servers: 1}, Web: Web{FileBytes: 1}}
	limits := probe.Limits{OpenFiles: 20_000, Cores: 2, LocalPorts: 60_000}
	proxy, _ := subjects.Find("haproxy-http")
	for _, tc := range []struct {
		subject subject.Subject
		tls     bool
		says    string
	}{{deaf{}, true, "deaf reads HTTP, and is not set up to end TLS"}, {deaf{}, false, ""}, {proxy, true, ""}} {
		p := Point{Subject: tc.subject, Params: subject.Params{"threads": 1}, Experiment: web.AB, Concurrency: 1, Form: form,
			By: Load{}.With(web.Settings{TLS: tc.tls})}
		if got := web.AB.SkipReason(p, limits); !strings.Contains(got, tc.says) || (got == "") != (tc.says == "") {
			t.Errorf("%s, TLS %v: %q, want %q", tc.subject.Name(), tc.tls, got, tc.says)
		}
	}
}
