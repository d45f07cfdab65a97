// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/remote"
)

// fewMachines has fewer machines than any suite's laboratory has hosts.
var fewMachines = &remote.Inventory{Clients: make([]remote.Host, 1), Servers: make([]remote.Host, 2)}

// onFewMachines returns a suite's short form as it runs on fewMachines.
func onFewMachines(t *testing.T, suite string) (Form, error) {
	t.Helper()
	text, err := os.ReadFile("../../../suites/" + suite)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseSuite(suite, text)
	if err != nil {
		t.Fatal(err)
	}
	return read.Quick.OnMachines(fewMachines)
}

func TestDocumentsSuitesRunOnMachines(t *testing.T) {
	for suite, skipReasons := range map[string][]string{
		"l2dsr-bmt.yaml":       nil,
		"loxilb-graviton.yaml": nil,
		"dns-udp.yaml":         {"2 generators: there are 1 clients"},
	} {
		form, err := onFewMachines(t, suite)
		if err != nil {
			t.Errorf("%s: %v", suite, err)
			continue
		}
		for _, trial := range Plan(form, roomy, Absent{Kinds: form.RemoteAbsent()}) {
			params := trial.AllParams()
			if pinned, there := params["pinned"]; there && pinned != "no" {
				t.Errorf("%s, %s: pinned is %v", suite, trial.Load, pinned)
			}
			if params["clients"] != 1 && trial.SkipReason == "" {
				t.Errorf("%s, %s: parameters %v", suite, trial.Load, params)
			}
			if trial.SkipReason != "" && !strings.Contains(strings.Join(skipReasons, "\n"), trial.SkipReason) {
				t.Errorf("%s, %s: skip reason %q", suite, trial.Load, trial.SkipReason)
			}
		}
		notes := strings.Join(form.NotesOnMachines(), "\n")
		if strings.Contains(notes, "tied to the last core") {
			t.Errorf("%s: its notes are of namespaces: %s", suite, notes)
		}
	}
}

func TestConductedLoadsDoNotRunOnMachines(t *testing.T) {
	for _, suite := range []string{"change.yaml", "synflood.yaml", "etri-connections.yaml"} {
		if _, err := onFewMachines(t, suite); !errors.Is(err, ErrMachines) ||
			!strings.Contains(err.Error(), "conducted step by step") {
			t.Errorf("%s: %v", suite, err)
		}
	}
}
