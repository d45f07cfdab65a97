// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	_ "github.com/jeoul/jeoul/internal/weigh/bench/kind"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// memcached is a kind of load that no other file names: values by mc over UDP.
type memcached struct{}

// memcachedSettings are a load's keys.
type memcachedSettings struct {
	ValueBytes int `yaml:"value_bytes"`
}

func (memcached) Name() string { return "mc" }

func (memcached) Settings(read func(into any)) any {
	return bench.ReadSettings[memcachedSettings](read)
}

func (memcached) Check(l bench.Load, form bench.Form, at bench.Path, fail bench.FailFunc) {
	l.CheckConcurrency(at, form.Lab.Clients, fail)
	if n := bench.SettingsOf[memcachedSettings](l).ValueBytes; n < 1 || n > 1400 {
		fail(at.To("value_bytes"), "%d is not possible; use 1 to 1400", n)
	}
}

func (memcached) SkipReason(bench.Point, probe.Limits) string { return "" }

func (memcached) Params(p bench.Point) map[string]any {
	return map[string]any{"value_bytes": bench.SettingsOf[memcachedSettings](p.By).ValueBytes}
}

func (memcached) Programs() bench.Programs                         { return bench.Programs{} }
func (memcached) OnMachines() string                               { return "" }
func (memcached) Notes(bench.Form) []string                        { return nil }
func (memcached) Prepare(context.Context, *bench.Runner) error     { return nil }
func (memcached) Services(*lab.Lab, bench.Point) []subject.Service { return nil }

func (memcached) Conduct(context.Context, *bench.Runner, bench.Trial, subject.Running, results.Trial) ([]results.Trial,
	error) {
	return nil, nil
}

func (memcached) Line([]results.Trial) string { return "" }

const memcachedSuite = `name: values
lab: {clients: 1, servers: 2}
repeats: 2
subjects: [{name: direct}, {name: routed}]
loads:
  - {kind: mc, concurrency: [4, 8], duration: 1s, value_bytes: 100}
`

// TestNewKind: the keys of a registered kind are read from a suite and checked, and its points are planned, without any
// change elsewhere.
func TestNewKind(t *testing.T) {
	bench.Register(memcached{})
	suite, err := bench.ParseSuite("s.yaml", []byte(memcachedSuite))
	if err != nil {
		t.Fatal(err)
	}
	trials := bench.Plan(suite.Long, probe.Limits{OpenFiles: 1000, Cores: 2, LocalPorts: 1000}, bench.Absent{})
	if len(trials) != 8 {
		t.Fatalf("%d trials, want two subjects and two numbers of connections twice", len(trials))
	}
	for _, trial := range trials {
		if params := trial.Experiment.Params(trial.Point); trial.SkipReason != "" || params["value_bytes"] != 100 {
			t.Errorf("%s: skip reason %q, parameters %v", trial.Load, trial.SkipReason, params)
		}
	}
	for from, c := range map[string]struct{ to, says string }{
		"value_bytes: 100": {"value_bytes: 9000", "s.yaml:6: loads[0].value_bytes: 9000 is not possible; use 1 to 1400"},
		"value_bytes":      {"value_byte", "unknown key value_byte"},
		"kind: mc":         {"kind: tcp_rr", "s.yaml:6: loads[0].value_bytes: goes with mc, not with tcp_rr"},
		"100":              {"many", "`many` is not a whole number"},
	} {
		_, err := bench.ParseSuite("s.yaml", []byte(strings.Replace(memcachedSuite, from, c.to, 1)))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q in place of %q: got %v, want %q", c.to, from, err, c.says)
		}
	}
}
