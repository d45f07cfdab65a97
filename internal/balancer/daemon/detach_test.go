// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
)

// TestForwardsUntil: a data plane says itself whether it has stepped aside, which it does a moment after its time.
func TestForwardsUntil(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.Local)
	for want, k := range map[string]keeper.Kept{
		"it forwards for ever":                                                               {},
		"it forwards until 2026-07-01 12:00:20 (for 20s)":                                    {FailOpen: now.Add(20 * time.Second)},
		"it forwards until 2026-07-01 11:59:59 (for 0s)":                                     {FailOpen: now.Add(-time.Second)},
		"it has left packets for its VIPs to the kernel since 2026-07-01 11:59:50 (for 10s)": {FailOpen: now.Add(-10 * time.Second), IsFailOpen: true},
	} {
		if got := forwardsUntil(k, now); got != want {
			t.Errorf("%+v: %q, want %q", k, got, want)
		}
	}
}
