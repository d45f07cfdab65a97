// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

func TestSaturated(t *testing.T) {
	client := func(cores float64) Usage { return Usage{Part: results.SaturatedClient, Cores: cores} }
	backend := func(cores float64) Usage { return Usage{Part: results.SaturatedBackend, Cores: cores} }
	balancer := func(cores, busiest, allowed float64) Usage {
		return Usage{Part: results.SaturatedBalancer, Cores: cores, Busiest: busiest, BusiestName: "haproxy/7",
			Allowed: allowed}
	}
	for _, tc := range []struct {
		name  string
		parts []Usage
		idle  float64
		cores float64
		want  results.Part
		says  string
	}{
		{"a full thread on an idle machine", []Usage{client(2), balancer(1, 0.97, 0)}, 12, 16,
			results.SaturatedBalancer, "haproxy/7 used 0.97 of a core"},
		{"just below a full thread", []Usage{client(2), balancer(1, 0.94, 0)}, 12, 16, results.SaturatedNone,
			"75 % of the machine idled"},
		{"all threads that it may have", []Usage{client(2), balancer(3.9, 0.9, 4)}, 9, 16, results.SaturatedBalancer,
			"3.90 of the 4 cores"},
		{"the one nearest to its limit", []Usage{{Part: results.SaturatedClient, Cores: 5, Busiest: 0.96},
			balancer(1, 0.99, 1)}, 9, 16, results.SaturatedBalancer, ""},
		{"a full shared machine, one clearly largest", []Usage{client(0.5), balancer(0.9, 0.8, 2), backend(0.6)}, 0.01,
			2, results.SaturatedBalancer, "largest share"},
		{"a full shared machine, two alike", []Usage{client(0.9), balancer(0.3, 0.3, 0), backend(0.8)}, 0, 2,
			results.SaturatedUnknown, "client 0.90, backend 0.80, balancer 0.30, idle 0.00"},
		{"the switch is largest", []Usage{client(0.3), {Part: PartSwitch, Cores: 1.2}}, 0, 2, results.SaturatedUnknown,
			"saturated: switch"},
		{"no figures", nil, 0, 2, results.SaturatedUnknown, "no CPU figures"},
		{"no cores", []Usage{client(1)}, 0, 0, results.SaturatedUnknown, "no CPU figures"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, note := Saturated(tc.parts, tc.idle, tc.cores)
			if got != tc.want || !strings.Contains(note, tc.says) {
				t.Errorf("got %s, want %s; note %q must say %q", got, tc.want, note, tc.says)
			}
		})
	}
}
