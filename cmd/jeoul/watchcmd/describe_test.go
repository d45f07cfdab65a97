// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestDescribe: all details of a service, and of a backend.
func TestDescribe(t *testing.T) {
	status := cmdtest.Checked()
	at := status.Started
	weight := uint16(5)
	failing := &status.Services[0].Backends[2]
	failing.ConfiguredWeight, failing.Interface, failing.NextHop, failing.MTU = &weight, "eth0", failing.Address, 1500
	failing.Health.Since, failing.Health.Reason = at, "answers GET /healthz with status 503"
	failing.Reason, failing.Since = failing.Health.Reason, at
	status.Services[0].Outliers = &ops.Outliers{FailuresPercent: 50, Connections: 20, IntervalSeconds: 10,
		PauseSeconds: 30, LongestPauseSeconds: 300, EjectedPercent: 10}
	status.Services[0].SlowStartSeconds = 30
	status.Services[0].Transition = &ops.Transition{Since: at, Until: at.Add(15 * time.Minute), MovedSlots: 347,
		Slots: 1021, Base: true}
	status.Operations.InForce = []ops.Overlay{{Target: cmdtest.BackendOf("web", "web03", 13),
		Weight: &ops.Weighted{Value: 0, Configured: 5, By: "kim", At: at}},
		{Target: cmdtest.BackendOf("web6", "web01", 13), Weight: &ops.Weighted{By: "other", At: at}}}
	s, stop := cmdtest.ServeFake(t, filepath.Join(t.TempDir(), "jeoul.sock"), status)
	defer stop()
	about := func(backend string) any {
		return events.About{Kind: events.KindHealth, Service: "web", Backend: backend}.Attr()
	}
	for i := range maxEvents + 2 {
		s.Log.Info(fmt.Sprintf("event %d of web03", i), about("web03"))
	}
	s.Log.Warn("the only one of web01", about("web01"))

	var out bytes.Buffer
	for _, backend := range []string{"", "web03"} {
		d, err := fetchDescription(t.Context(), s.Flags, "web", backend)
		if err != nil {
			t.Fatal(err)
		}
		if backend == "" {
			d.writeService(&out, at)
		} else {
			d.writeBackend(&out, at)
		}
		fmt.Fprintln(&out)
	}
	when := regexp.MustCompile(`(?m)^  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  (info|warning)`)
	cmdtest.WantGolden(t, "describe", when.ReplaceAll(out.Bytes(), []byte("  TIME  $1")))

	_, err := fetchDescription(t.Context(), s.Flags, "shop", "")
	cmdtest.WantError(t, err, "there is no service shop; `jeoul get services` lists")
	_, err = fetchDescription(t.Context(), s.Flags, "web", "web9")
	cmdtest.WantError(t, err, "web has no backend web9; `jeoul get backends web` lists")
}
