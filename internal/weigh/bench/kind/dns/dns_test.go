// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

func TestDNSTrialIsNotValidWhereManyAreLost(t *testing.T) {
	for lost, valid := range map[uint64]bool{0: true, 10: true, 11: false} {
		d := &dnsTrial{runner: &bench.Runner{Limits: probe.Limits{Cores: 2}},
			got: &results.Trial{Metrics: map[string]float64{}}}
		d.trial.By = d.trial.By.With(settings{&DNSPerf{}})
		d.writeCounts(&load.Result{Requests: 1000 - lost, Lost: lost, PerSecond: 990})
		if d.got.Valid != valid || !valid && !strings.Contains(strings.Join(d.got.Notes, ""),
			"1.1 % of all, had no answer within 5s") {
			t.Errorf("%d of 1000 lost: valid %v, notes %q", lost, d.got.Valid, d.got.Notes)
		}
	}
}

func TestHostSharesAreOfTheWholeMachine(t *testing.T) {
	got := hostShares(probe.Machine{User: 0.5, System: 1, Softirq: 0.25, Idle: 2}, 4)
	want := map[string]float64{results.HostUserPercent: 12.5, results.HostSystemPercent: 25,
		results.HostSoftirqPercent: 6.25, results.HostIdlePercent: 50}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStopwatch(t *testing.T) {
	var s cpuTimes
	s.read([]time.Duration{time.Second, 5 * time.Second, 7 * time.Second})
	s.read([]time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second})
	if diff := cmp.Diff(cpuTimes{time.Second, 0, 3 * time.Second}, s); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if percent, ok := s.busyPercent(4 * time.Second); !ok || percent != 50 {
		t.Errorf("%g %%, %v; want the mean of the two that did something", percent, ok)
	}
	if _, ok := (cpuTimes{}).busyPercent(time.Second); ok {
		t.Error("no process was busy")
	}
}
