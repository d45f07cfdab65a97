// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// counting returns a measurement in a machine whose clock counts instructions.
func counting() *Measurement {
	options := Options{Virtual: &results.Virtual{Instructions: true}}
	return &Measurement{Runner: &Runner{Options: options},
		Got: &results.Trial{Valid: true, Metrics: map[string]float64{}}}
}

func TestTimeIsInstructions(t *testing.T) {
	m := counting()
	m.WriteInstructions(&load.Result{Requests: 8000, Duration: 2 * time.Second}, probe.Reading{Idle: 0.001})
	if got := m.Got.Metrics[results.InstructionsPerRequest]; got != 250_000 || !m.Got.Valid {
		t.Errorf("2 s for 8,000 requests are %v instructions each, valid %v", got, m.Got.Valid)
	}
}

func TestIdleTimeIsNoInstructions(t *testing.T) {
	m := counting()
	m.WriteInstructions(&load.Result{Requests: 8000, Duration: 2 * time.Second}, probe.Reading{Idle: 0.02})
	if m.Got.Valid || len(m.Got.Notes) == 0 || !strings.Contains(m.Got.Notes[0], "idled 2.0 %") {
		t.Errorf("a processor that idled: valid %v, %q", m.Got.Valid, m.Got.Notes)
	}
}

func TestOnlyACountingMachineCounts(t *testing.T) {
	for want, v := range map[bool]*results.Virtual{true: {Instructions: true}, false: {Accelerator: "kvm"}} {
		if got := (Options{Virtual: v}).Counts(); got != want {
			t.Errorf("%+v counts: %v", v, got)
		}
	}
	if (Options{}).Counts() {
		t.Error("a run on the machine itself counts instructions")
	}
	env := results.Environment{Notes: []string{"size"}}
	addVirtual(&env, Options{Virtual: &results.Virtual{Instructions: true}})
	if len(env.Notes) != 1+len(countingNotes) || env.Virtual == nil {
		t.Errorf("the environment is %+v", env)
	}
}
