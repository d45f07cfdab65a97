// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

func TestOutliers(t *testing.T) {
	usual := lb.Outliers{Failures: 50, Connections: 20, Interval: 5 * time.Second, Pause: 30 * time.Second,
		LongestPause: 5 * time.Minute, Ejected: 50}
	with := func(change func(*lb.Outliers)) lb.Outliers {
		o := usual
		change(&o)
		return o
	}
	for line, want := range map[string]lb.Outliers{
		"mode: nat": {},
		"mode: nat\n    outliers: {failures: 50%}": usual,
		"mode: nat\n    outliers: {failures: 50%, pause: 10m}": with(func(o *lb.Outliers) {
			o.Pause, o.LongestPause = 10*time.Minute, 10*time.Minute
		}),
		"mode: nat\n    outliers: {failures: 1%, ejected: 100%, connections: 1}": with(func(o *lb.Outliers) {
			o.Failures, o.Ejected, o.Connections = 1, 100, 1
		}),
		"mode: nat\n    protocol: udp\n    outliers: {failures: 50%, interval: 1s}": with(func(o *lb.Outliers) {
			o.Interval = time.Second
		}),
	} {
		cfg, err := Parse("f", []byte(checked(line)))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		s := cfg.Services[0]
		if diff := cmp.Diff(want, s.Outliers); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
		if s.Outliers.On() && (s.Checks.Panic != lb.DefaultPanic || s.Checks.OnDown != lb.DefaultOnDown(s.Protocol)) {
			t.Errorf("%s: panic %d%%, on_down %s", line, s.Checks.Panic, s.Checks.OnDown)
		}
		checkRoundTrip(t, cfg)
	}
}

// TestOutliersRefused: settings by which nothing can be judged are refused with their line and field, and with the
// remedy.
func TestOutliersRefused(t *testing.T) {
	for lines, want := range map[string]string{
		"outliers: {failures: 50%}":                                                       "f:6: services[0].outliers: in the mode l2dsr the backends' answers do not come back through the balancer, which would judge by them; write a check, or use mode nat or fullnat",
		"mode: ipip\n    outliers: {failures: 50%}":                                       "f:7: services[0].outliers: in the mode ipip",
		"mode: nat\n    outliers: {interval: 5s}":                                         "f:7: services[0].outliers.failures: missing",
		"mode: nat\n    outliers: {failures: 0%}":                                         `f:7: services[0].outliers.failures: "0%" is not a share in per cent, from 1% to 100%`,
		"mode: nat\n    outliers: {failures: 50}":                                         `f:7: services[0].outliers.failures: "50" is not a share in per cent`,
		"mode: nat\n    outliers: {failures: 50%, pause: 1h, longest_pause: 30m}":         "f:7: services[0].outliers.longest_pause: 30m is less than pause, 1h",
		"mode: nat\n    outliers: {failures: 50%, interval: 11m}":                         "not from 1s to 10m",
		"mode: nat\n    outliers: {failures: 50%, connections: 0}":                        "f:7: services[0].outliers.connections:",
		"mode: nat\n    outliers: {failures: 50%, ejected: 101%}":                         "f:7: services[0].outliers.ejected:",
		"mode: nat\n    outliers: {failures: 50%}\n    on_down: reset":                    "f:8: services[0].on_down: is the policy for flows",
		"mode: nat\n    outliers: {failures: 50%}\n    on_empty: withdraw\n    panic: 9%": "f:9: services[0].panic: uses all backends",
	} {
		_, err := Parse("f", []byte(checked(lines)))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error\n%v\nwant one with\n%s", lines, err, want)
		}
	}
}
