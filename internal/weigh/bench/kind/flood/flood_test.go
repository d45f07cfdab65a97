// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

func init() { bench.Register(Kind) }

// TestSynfloodSuite reads the suite that users run.
func TestSynfloodSuite(t *testing.T) {
	suite, err := bench.LoadSuite("../../../../../suites/synflood.yaml")
	if err != nil {
		t.Fatal(err)
	}
	limits := probe.Limits{OpenFiles: 20000, Cores: 2, LocalPorts: 60000}
	for name, form := range map[string]bench.Form{"long": suite.Long, "quick": suite.Quick} {
		var sum time.Duration
		for _, trial := range bench.Plan(form, limits, bench.Absent{}) {
			if trial.SkipReason != "" {
				if trial.Subject.Name() != "haproxy-tcp" || trial.Load != "udp" {
					t.Errorf("%s: %s under %s cannot be measured: %s", name, trial.Subject.Name(), trial.Load,
						trial.SkipReason)
				}
				continue
			}
			for _, phase := range floodPhases(trial.Duration) {
				sum += phase.Time
			}
		}
		// A trial takes about a second more.
		if name == "quick" && sum.Minutes() > 3 {
			t.Errorf("the phases of the short form take %v", sum)
		}
	}
}
