// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// dnsSubject is a subject of a made-up run.
type dnsSubject struct {
	name, scheduler string
	// rate is its answers a second with one name server.
	rate float64
	// uneven is by how many per cent the first name server gets more than the others.
	uneven float64
}

func dnsSubjects() []dnsSubject {
	return []dnsSubject{
		{name: "direct", rate: 30_000},
		{name: "iptables-nth", rate: 25_000},
		{name: "nginx-stream", rate: 12_000},
		{name: "docker-proxy", rate: 10_000},
		{name: "jeoul-nat-tc", scheduler: "rr", rate: 27_000},
		{name: "jeoul-l2dsr-xdp", scheduler: "rr", rate: 29_000, uneven: 1},
	}
}

// dnsRun makes a run with one to three name servers, and one or two generators.
func dnsRun(subjects []dnsSubject) *results.Run {
	run := &results.Run{
		Schema: results.Schema, Suite: "dns-udp", Title: "DNS", Started: time.Unix(1, 0),
		Environment: results.Environment{Kernel: "6.18", Cores: 2},
	}
	for _, s := range subjects {
		for _, generators := range []int{1, 2} {
			for backends := 1; backends <= 3; backends++ {
				run.Trials = append(run.Trials, s.trial(backends, generators))
			}
		}
	}
	return run
}

func (s dnsSubject) trial(backends, generators int) results.Trial {
	rate := s.rate * float64(backends)
	t := results.Trial{
		Subject: s.name, Load: "even", Repeat: 1, Valid: true, Saturated: results.SaturatedBackend,
		Params: map[string]any{"question": "a.domain.local A", "backends": backends, "clients": generators,
			"concurrency": 60 * generators, "duration_seconds": 10},
		Metrics: map[string]float64{
			results.QueriesPerSecond: rate, results.Queries: rate * 10, results.Lost: 0, results.Failed: 0,
			results.LatencyMsMin:  0.02,
			results.LatencyMsMean: 0.5, results.LatencyMsMax: 9, results.NameServerCPUPercent: 120 / float64(backends),
			results.ContextSwitchesPerS: rate * 1.5, results.HostUserPercent: 48, results.HostSystemPercent: 25,
			results.HostSoftirqPercent: 16, results.HostIdlePercent: 11, results.BalancerCPUUsPerRequest: 1e5 / s.rate,
		},
	}
	if s.name == "docker-proxy" {
		t.Metrics[results.RelayCPUPercent] = 100
	}
	if s.scheduler != "" {
		t.Params["scheduler"] = s.scheduler
	}
	for i := range backends {
		queries := rate * 10 / float64(backends)
		if i == 0 {
			queries *= 1 + s.uneven/100
		}
		t.Backends = append(t.Backends, results.Backend{Name: fmt.Sprintf("web%02d", i+1), Queries: uint64(queries)})
	}
	return t
}

func TestDNSReport(t *testing.T) {
	run := dnsRun(dnsSubjects())
	run.Trials = append(run.Trials, results.Trial{Subject: "ipvs-nat", Load: "even", Repeat: 1,
		Saturated: results.SaturatedUnknown,
		Params: map[string]any{"question": "a.domain.local A", "backends": 1, "clients": 1, "concurrency": 60,
			"duration_seconds": 10},
		Notes: []string{"this kernel has no IPVS"}})
	for ending, write := range map[string]func(io.Writer, *results.Run) error{"md": Markdown, "txt": Terminal} {
		compareGolden(t, filepath.Join("testdata", "dns."+ending), render(t, write, run))
	}
	page := render(t, HTML, run)
	for _, want := range []string{"Queries a second by number of name servers: 120 concurrent · 2 clients",
		"Context switches", "this kernel has no IPVS"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestDNSTargets changes one figure at a time, and checks the sentence that it changes.
func TestDNSTargets(t *testing.T) {
	const rules, relay, nat, l2dsr = 1, 3, 4, 5
	for name, tc := range map[string]struct {
		change func([]dnsSubject)
		missed string
	}{
		"all is well": {func([]dnsSubject) {}, ""},
		"below the rules": {func(s []dnsSubject) { s[rules].rate = 28_000 },
			"jeoul-nat-tc ≥ 1.00 × iptables-nth (0.96)"},
		"near the relay": {func(s []dnsSubject) { s[relay].rate = 14_000 },
			"jeoul-nat-tc ≥ 2.00 × docker-proxy (1.93)"},
		"no docker-proxy": {func(s []dnsSubject) { s[relay].name = "envoy"; s[2].rate = 14_000 },
			"jeoul-nat-tc ≥ 2.00 × nginx-stream (1.93)"},
		"uneven": {func(s []dnsSubject) {
			s[l2dsr].uneven = 3
		}, "jeoul-l2dsr-xdp with round robin, the busiest name server over the idlest, ≤ 2 % (3.00 %)"},
		"uneven by hash": {func(s []dnsSubject) { s[nat].uneven, s[nat].scheduler = 30, "maglev" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			subjects := dnsSubjects()
			tc.change(subjects)
			var missed []string
			for _, s := range aggregate(dnsRun(subjects).Trials, "") {
				for _, sentence := range model.Verdict(s) {
					if strings.Contains(sentence, "Targets that are missed") {
						missed = append(missed, sentence)
					}
				}
			}
			text := strings.Join(missed, "\n")
			if (tc.missed == "") != (text == "") || !strings.Contains(text, tc.missed) {
				t.Errorf("missed is %q, want %q", text, tc.missed)
			}
		})
	}
}

// TestDNSRateIsNoLimit bounds the queries of generators at one point: a subject that answers all of them is not judged
// there.
func TestDNSRateIsNoLimit(t *testing.T) {
	subjects := dnsSubjects()
	subjects[3].rate = 14_000
	for most, want := range map[int][]string{
		// Enough for all; enough for docker-proxy; too little for anybody.
		100_000: {"jeoul-nat-tc ≥ 2.00 × docker-proxy (1.93)"},
		60_000: {"jeoul-nat-tc ≥ 2.00 × docker-proxy (1.93)",
			"2 of 12 points of ours reached the rate that dnsperf was told (-Q)"},
		1_000: {"jeoul-nat-tc ≥ 2.00 × docker-proxy (1.93)",
			"2 of 12 points of ours reached the rate that dnsperf was told (-Q)"},
	} {
		run := dnsRun(subjects)
		for _, trial := range run.Trials {
			if trial.Params["backends"] == 3 && trial.Params["clients"] == 1 {
				trial.Params["queries_per_second_most"] = most
				trial.Metrics[results.QueriesPerSecond] = min(trial.Metrics[results.QueriesPerSecond], float64(most))
			}
		}
		var text []string
		for _, s := range aggregate(run.Trials, "") {
			text = append(text, model.Verdict(s)...)
		}
		all := strings.Join(text, "\n")
		for _, sentence := range want {
			if !strings.Contains(all, sentence) {
				t.Errorf("at most %d: %s\nwant: %s", most, all, sentence)
			}
		}
		if len(want) == 1 && strings.Contains(all, "-Q") {
			t.Errorf("at most %d: %s", most, all)
		}
	}
}

// TestDNSIdleMachineIsNoLimit: where nothing was saturated, the generators were the limit.
func TestDNSIdleMachineIsNoLimit(t *testing.T) {
	subjects := dnsSubjects()
	subjects[3].rate = 14_000
	for idle, want := range map[string]string{
		"jeoul-nat-tc": "At 6 of 12 points of ours the machine was not full",
		"docker-proxy": "Targets that hold",
	} {
		run := dnsRun(subjects)
		for i := range run.Trials {
			if run.Trials[i].Subject == idle {
				run.Trials[i].Saturated = results.SaturatedNone
			}
		}
		var text []string
		for _, s := range aggregate(run.Trials, "") {
			text = append(text, model.Verdict(s)...)
		}
		all := strings.Join(text, "\n")
		if !strings.Contains(all, want) || strings.Contains(all, "Targets that are missed") {
			t.Errorf("%s idles: %s\nwant: %s, and nothing missed", idle, all, want)
		}
	}
}

func TestDNSEvennessCountsWhereSocketsAskAlike(t *testing.T) {
	subjects := dnsSubjects()
	subjects[5].uneven = 30
	for name, change := range map[string]func(*results.Trial){
		"threads":              func(t *results.Trial) { t.Params["generator_threads"] = 16 },
		"generators":           func(t *results.Trial) { t.Params["clients"] = 2 },
		"sockets that are odd": func(t *results.Trial) { t.Params["concurrency"] = 7 },
	} {
		run := dnsRun(subjects)
		for i := range run.Trials {
			change(&run.Trials[i])
		}
		for _, s := range aggregate(run.Trials, "") {
			if text := strings.Join(model.Verdict(s), "\n"); strings.Contains(text, "busiest") {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}
