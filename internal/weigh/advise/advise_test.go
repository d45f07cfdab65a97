// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// answers returns complete answers: new HTTP connections on a segment where everything but tunnels is permitted.
func answers(change func(*Answers)) Answers {
	a := Answers{Speaks: HTTP, Requests: 20_000, Bytes: 5120, Lifetime: Short, ClientAddress: InPacket,
		Network: Segment,
		Permits: []Permission{Backends, Bypass}, Failures: 1, Cores: 1, Usage: 0.6}
	change(&a)
	return a
}

// expected is the advice that a scenario must get.
type expected struct {
	Verdict   Verdict
	Mode      lb.Mode
	Scheduler lb.Scheduler
	Balancers int
	Sharing   Sharing
	// Part is the resource that one balancer runs out of first.
	Part string
}

// scenarios are services as people describe them; the first four are those of the documents whose experiments the
// suites repeat.
var scenarios = map[string]struct {
	answers Answers
	want    expected
}{
	"web servers that answer clients themselves (2022)": {
		answers(func(a *Answers) {}),
		expected{UseMode, lb.L2DSR, lb.Maglev, 2, VRRP, "cores"}},
	"three endpoints behind NAT, a transaction a connection (LoxiLB)": {
		answers(func(a *Answers) {
			a.Speaks, a.Bytes, a.Requests, a.Permits, a.Failures = TCP, 1, 45_000, []Permission{Backends}, 0
		}),
		expected{UseMode, lb.NAT, lb.Maglev, 1, Alone, "cores"}},
	"DNS containers of one host (2016)": {
		answers(func(a *Answers) {
			a.Speaks, a.Bytes, a.Requests, a.Permits, a.Failures = DNS, 100, 135_000, []Permission{Backends}, 0
		}),
		expected{UseMode, lb.NAT, lb.RoundRobin, 1, Alone, "cores"}},
	"connections through a switch to seven servers (ETRI)": {
		answers(func(a *Answers) { a.Speaks, a.Bytes, a.Requests, a.Failures, a.Link = TCP, 1, 12_600, 0, 1e9 }),
		expected{UseMode, lb.L2DSR, lb.Maglev, 1, Alone, "link"}},
	"backends behind routers, tunnels allowed": {
		answers(func(a *Answers) { a.Network, a.Permits = Routed, AllPermissions }),
		expected{UseMode, lb.IPIP, lb.Maglev, 2, BGP, "cores"}},
	"backends behind routers, packets must not grow": {
		answers(func(a *Answers) { a.Network = Routed }),
		expected{UseMode, lb.DSCP, lb.Maglev, 2, BGP, "cores"}},
	"backends that nobody may touch, and that need not know clients": {
		answers(func(a *Answers) {
			a.Speaks, a.Lifetime, a.Network, a.Permits, a.ClientAddress, a.Failures, a.Open = TCP, Long, Routed, nil,
				Nowhere, 0, 500_000
		}),
		expected{UseMode, lb.FullNAT, lb.RoundRobin, 1, Alone, "flows"}},
	"a shop over HTTPS, by host and path": {
		answers(func(a *Answers) {
			a.Speaks, a.Layer7, a.Requests, a.ClientAddress, a.Cores = HTTPS, true, 2000, InHeader, 8
		}),
		expected{UseHAProxy, lb.ModeProxy, lb.WeightedRoundRobin, 2, VRRP, "cores"}},
	"web servers that nobody may touch, and that log clients": {
		answers(func(a *Answers) { a.Lifetime, a.Permits, a.ClientAddress, a.Cores = Long, nil, InHeader, 2 }),
		expected{UseHAProxy, lb.ModeProxy, lb.LeastConnections, 2, VRRP, "cores"}},
	"long connections, many open, one balancer": {
		answers(func(a *Answers) { a.Speaks, a.Bytes, a.Lifetime, a.Failures, a.Open = TCP, 200, Long, 0, 300_000 }),
		expected{UseMode, lb.L2DSR, lb.LeastConnections, 1, Alone, "flows"}},
	"long connections, very many open, one of two balancers may fail": {
		answers(func(a *Answers) {
			a.Speaks, a.Bytes, a.Lifetime, a.Requests, a.Open = TCP, 200, Long, 1000, 10e6
		}),
		expected{UseMode, lb.L2DSR, lb.Maglev, 2, VRRP, "cores"}},
	"long connections, more open than one balancer remembers": {
		answers(func(a *Answers) {
			a.Speaks, a.Bytes, a.Lifetime, a.Requests, a.Failures, a.Open = TCP, 200, Long, 1000, 0, 10e6
		}),
		expected{UseMode, lb.L2DSR, lb.Maglev, 1, Alone, "cores"}},
	"large files over a link of 10 Gbit/s": {
		answers(func(a *Answers) {
			a.Speaks, a.Lifetime, a.Bytes, a.Requests, a.Permits, a.Link = TCP, Long, 50e6, 30,
				[]Permission{Backends}, 10e9
		}),
		expected{UseMode, lb.NAT, lb.Maglev, 4, BGP, "link"}},
	"backends that nobody may touch must see clients": {
		answers(func(a *Answers) { a.Network, a.Permits = Routed, nil }),
		expected{Verdict: UseNone}},
	"more handshakes than a laboratory's figures can promise": {
		answers(func(a *Answers) { a.Speaks, a.Layer7, a.Requests, a.ClientAddress = HTTPS, true, 100_000, InHeader }),
		expected{Verdict: UseNone}},
}

// decided advises by the embedded evidence.
func decided(t *testing.T, a Answers) *Advice {
	t.Helper()
	evidence, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	advice, err := Decide(evidence, a)
	if err != nil {
		t.Fatal(err)
	}
	return advice
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			advice := decided(t, s.answers)
			got := expected{advice.Verdict, advice.Mode, advice.Scheduler, advice.Balancers, advice.Sharing, ""}
			if advice.Limit != nil {
				got.Part = advice.Limit.Part
			}
			if diff := cmp.Diff(s.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, advice.Summary)
			}
			configuration, err := advice.Configuration(DefaultPlace(s.answers.Network))
			if err != nil {
				t.Fatal(err)
			}
			if s.want.Verdict == UseNone {
				if configuration != nil || len(advice.Statements) > 0 && advice.Limit != nil {
					t.Errorf("there is no answer, and a configuration:\n%s", configuration)
				}
				return
			}
			cfg, err := config.Parse("jeoul.yaml", configuration)
			if err != nil {
				t.Fatal(err)
			}
			if got := cfg.Services[0]; got.Mode != s.want.Mode || got.Scheduler != s.want.Scheduler {
				t.Errorf("the configuration is %s by %s", got.Mode, got.Scheduler)
			}
		})
	}
}

// TestStatementsRestOnSomething: each statement names a figure of the evidence, or states its assumption.
func TestStatementsRestOnSomething(t *testing.T) {
	t.Parallel()
	for name, s := range scenarios {
		advice := decided(t, s.answers)
		about := map[string]bool{}
		for _, statement := range advice.Statements {
			about[statement.About] = true
			// The use of one balancer is computed from the figures of the statements before it.
			if statement.About != "limit" && len(statement.Figures) == 0 && statement.Assumes == "" {
				t.Errorf("%s: %q rests on nothing", name, statement.Says)
			}
			for _, f := range statement.Figures {
				if f.Repeats < 1 || f.Metric == "" || !strings.HasPrefix(f.File, "docs/results/") {
					t.Errorf("%s: %q rests on %+v", name, statement.Says, f)
				}
			}
		}
		if s.want.Verdict != UseNone && (!about["balancers"] || !about["scheduler"] || !about["mode"] &&
			!about["haproxy"]) {
			t.Errorf("%s: statements about %v only", name, about)
		}
	}
}

func TestAnswersThatCannotBe(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Answers){
		`speaks: "" is not possible: use one of http, https, tcp, udp, dns`: func(a *Answers) { a.Speaks = "" },
		"requests: 0 is not possible: use 1 to 1,000,000,000":               func(a *Answers) { a.Requests = 0 },
		"failures: 9 is not possible: use 0 to 8":                           func(a *Answers) { a.Failures = 9 },
		"usage: 2 is not possible: use a share above 0, of at most 1":       func(a *Answers) { a.Usage = 2 },
		`permits: "all" is not possible: use one of tunnels, backends, bypass`: func(a *Answers) {
			a.Permits = []Permission{"all"}
		},
		"layer7: udp has no connection to end: use it with http, https or tcp": func(a *Answers) {
			a.Speaks,
				a.Layer7, a.ClientAddress = UDP, true, Nowhere
		},
		"client-address: header is for http, https and tcp": func(a *Answers) {
			a.Speaks,
				a.ClientAddress = DNS, InHeader
		},
		"client-address: header is written where TLS ends": func(a *Answers) {
			a.Speaks,
				a.ClientAddress = HTTPS, InHeader
		},
		"client-address: packet excludes layer7": func(a *Answers) { a.Layer7 = true },
		"lifetime: dns asks once a socket: use short": func(a *Answers) {
			a.Speaks,
				a.Lifetime = DNS, Long
		},
		"size: 0 is not possible: use 1 to 1,099,511,627,776; open: -1 is not pos": func(a *Answers) {
			a.Bytes,
				a.Open = 0, -1
		},
	} {
		_, err := Decide(&Evidence{}, answers(change))
		if !errors.Is(err, ErrAnswer) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestWithoutEvidence: advice needs figures that support it.
func TestWithoutEvidence(t *testing.T) {
	t.Parallel()
	advice, err := Decide(&Evidence{}, answers(func(*Answers) {}))
	if err != nil {
		t.Fatal(err)
	}
	if advice.Verdict != UseNone || advice.Mode != "" || !strings.Contains(advice.Summary,
		"nothing says what a request costs") {
		t.Errorf("got %+v", advice)
	}
}

// TestOwnResultsComeFirst: a figure of an own run replaces the committed one, and a slower machine needs more
// balancers.
func TestOwnResultsComeFirst(t *testing.T) {
	t.Parallel()
	evidence, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	run := &results.Run{Trials: []results.Trial{{Subject: "jeoul-l2dsr-tc", Load: "ab", Repeat: 1, Valid: true,
		Saturated: results.SaturatedBalancer,
		Params:    map[string]any{"scheduler": "maglev"},
		Metrics:   map[string]float64{results.RequestsPerSecond: 9000, results.BalancerCPUUsPerRequest: 70}}}}
	advice, err := Decide(evidence.Before(SourceOf("own.json", run, nil)), answers(func(*Answers) {}))
	if err != nil {
		t.Fatal(err)
	}
	// 20,000 requests of 70 µs are 1.4 cores, of which 0.6 may be used on each machine: three machines, and one that
	// may fail.
	if advice.Balancers != 4 || advice.Sharing != BGP || advice.Statements[0].Figures[0].File != "own.json" {
		t.Errorf("got %d balancers, %s, by %v", advice.Balancers, advice.Sharing, advice.Statements[0].Figures)
	}
}

// ownRun returns a run of one trial on a machine that takes 70 µs for a request.
func ownRun(load, subject string, scheduler lb.Scheduler, rate string) Source {
	return SourceOf("own.json", &results.Run{Trials: []results.Trial{{Subject: subject, Load: load, Repeat: 1,
		Valid: true, Saturated: results.SaturatedBalancer, Params: map[string]any{"scheduler": string(scheduler)},
		Metrics: map[string]float64{rate: 9000, results.BalancerCPUUsPerRequest: 70}}}}, nil)
}

// TestOwnResultsOfTheAdvisedScheduler: balancers are counted by the scheduler that several of them have.
func TestOwnResultsOfTheAdvisedScheduler(t *testing.T) {
	t.Parallel()
	testOwn(t, ownRun("full", "jeoul-nat-tc", lb.Maglev, results.QueriesPerSecond), answers(func(a *Answers) {
		a.Speaks, a.Bytes, a.Requests, a.Permits = DNS, 100, 20_000, []Permission{Backends}
	}))
}

// TestOwnResultsOfAnotherKind: an own run of another hook or scheduler, or of HAProxy as set up by hand, says more than
// an embedded one that fits better.
func TestOwnResultsOfAnotherKind(t *testing.T) {
	t.Parallel()
	short := answers(func(a *Answers) { a.Speaks, a.Bytes = TCP, 1 })
	testOwn(t, ownRun("crr", "jeoul-l2dsr-xdp", lb.Maglev, results.ConnectionsPerSecond), short)
	testOwn(t, ownRun("crr", "jeoul-l2dsr-tc", lb.RoundRobin, results.ConnectionsPerSecond), short)
	testOwn(t, ownRun("wrk", "haproxy-http", "", results.RequestsPerSecond), answers(func(a *Answers) {
		a.Lifetime, a.Permits, a.ClientAddress = Long, nil, InHeader
	}))
}

// TestLimitOfAResource: shares are those of the whole resource.
func TestLimitOfAResource(t *testing.T) {
	t.Parallel()
	evidence, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for want, own := range map[string][]Source{
		"one balancer would use 12 % of its cores, of which 60 % may be used": nil,
		"one balancer would use 140 % of its cores, of which 60 % may be used": {
			ownRun("ab", "jeoul-l2dsr-tc", lb.Maglev, results.RequestsPerSecond)},
	} {
		advice, err := Decide(evidence.Before(own...), answers(func(*Answers) {}))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range advice.Statements {
			if s.About == "limit" && s.Says != want {
				t.Errorf("got %q, want %q", s.Says, want)
			}
		}
	}
}

// testOwn asserts that a request costs what the own run says.
func testOwn(t *testing.T, own Source, a Answers) {
	t.Helper()
	evidence, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	advice, err := Decide(evidence.Before(own), a)
	if err != nil {
		t.Fatal(err)
	}
	for _, about := range []string{"balancers", "mode", "haproxy"} {
		for _, s := range advice.Statements {
			if s.About == about && s.Figures[0].File != own.File {
				t.Errorf("%s: %q rests on %v", about, s.Says, s.Figures)
			}
		}
	}
	// 20,000 requests of 70 µs are 1.4 cores, of which 0.6 may be used on each machine: three, and one that may fail.
	if advice.Balancers != 4 {
		t.Errorf("%d balancers by\n%v", advice.Balancers, advice.Statements)
	}
}

// TestEvidenceIsUpToDate compares the embedded evidence with the committed results.
func TestEvidenceIsUpToDate(t *testing.T) {
	t.Parallel()
	evidence, err := Committed("../../../docs/results")
	if err != nil {
		t.Fatal(err)
	}
	want, err := evidence.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("evidence.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("evidence.json is not that of docs/results: go generate ./internal/weigh/advise")
	}
}
