// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const smallTiers = `name: small
lab: {clients: 2, servers: 8}
repeats: 1
subjects:
  - name: jeoul-gue-xdp
    params: {scheduler: [maglev]}
baseline: jeoul-gue-xdp
loads:
  - kind: change
    concurrency: [200]
    changes: {proxies: 6, events: [add, remove, drain, undo], new_per_second: 20, reused: 20, pace: 200ms, lap: 200ms}
`

func TestTwoTiersSuiteErrors(t *testing.T) {
	for name, tc := range map[string]struct{ from, to, says string }{
		"none": {"", "", ""},
		"few proxies": {"proxies: 6", "proxies: 5",
			"loads[0]: change needs at least 6 servers, for one each comes, leaves, drains, weighs more, flaps and falls silent; proxies says 5"},
		"nothing behind": {"proxies: 6", "proxies: 8",
			"loads[0].changes.proxies: 8 is not possible: of the lab's 8 servers at least one stands behind the proxies"},
		"UDP": {"proxies: 6", "proxies: 6, queries_per_second: 3",
			"loads[0].changes.proxies: HAProxy carries no UDP"},
		"a server dies": {"undo]", "undo, dies], fault: 1s, check: {interval: 1s, timeout: 1s, fall: 3, rise: 2}",
			"loads[0].changes.events: dies happens to servers"},
		"without": {"proxies: 6, ", "", "loads[0].changes.queries_per_second: 0 is not possible"},
	} {
		_, err := ParseSuite("s.yaml", []byte(strings.Replace(smallTiers, tc.from, tc.to, 1)))
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v\nwant it to say %q", name, err, tc.says)
		}
	}
}

// TestTwoTiers: proxies behind a balancer of packets are added and removed, and connections through the other proxies
// do not break.
func TestTwoTiers(t *testing.T) {
	testenv.Target(t, benchTarget)
	t.Parallel()
	testenv.Program(t, "haproxy")
	r := startChangeOf(t, smallTiers, "jeoul-gue-xdp")
	run, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Trials) != 4 {
		t.Fatalf("%d results", len(run.Trials))
	}
	for _, trial := range run.Trials {
		m, event := trial.Metrics, trial.Params["event"]
		if !trial.Valid || m[results.Broken] != 0 || m[results.NewToLeft] != 0 {
			t.Errorf("%s, %s: valid %t, %g broke, %g new ones went to what had left; notes %q", trial.Subject, event,
				trial.Valid, m[results.Broken], m[results.NewToLeft], trial.Notes)
		}
		if event == "remove" != (m[results.Ended] > 0) {
			t.Errorf("%s, %s: %g connections of the proxy that left ended", trial.Subject, event, m[results.Ended])
		}
		if m[results.Connections] != 200 || len(trial.Backends) != 6 {
			t.Errorf("%s, %s: %g connections by %d proxies", trial.Subject, event, m[results.Connections],
				len(trial.Backends))
		}
		held := 0.0
		for _, proxy := range trial.Backends {
			held += float64(proxy.Connections)
		}
		if held != 200 {
			t.Errorf("%s, %s: %g connections are told to be a proxy's", trial.Subject, event, held)
		}
	}
	nothingLeft(t, r)
}
