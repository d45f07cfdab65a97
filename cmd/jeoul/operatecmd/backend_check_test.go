// SPDX-License-Identifier: Apache-2.0

package operatecmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestWriteChecked: the results of requested checks, with every step.
func TestWriteChecked(t *testing.T) {
	checked := &ops.Checked{Target: ops.Target{Service: "web", Backend: "web01"},
		Checks: []ops.Check{{Check: "tcp", Via: lb.ViaAddress, Expected: "a connection"},
			{Check: "http GET /", Via: lb.ViaAddress, Expected: "status 200-399"}},
		Results: []ops.CheckResult{{State: lb.Healthy, Answer: "connected", TookSeconds: 0.0002},
			{State: lb.Failing, Reason: "answers GET / with status 503, not 200-399", TookSeconds: 0.0123}},
		Steps: []ops.CheckStep{{Check: 0, Name: "connect", TookSeconds: 0.0002, Text: "192.0.2.1:80"},
			{Check: 1, Name: "answer", AtSeconds: 0.0123, TookSeconds: 0.01, Text: "status 503", Failed: true}}}
	var out bytes.Buffer
	writeChecked(&out, checked, true)
	for _, want := range []string{"web/web01  tcp via address: passed (connected), 200µs\n",
		"web/web01  http GET / via address: failed: the backend answers GET / with status 503, not 200-399; expected: status 200-399, 12.3ms\n", "answer", "status 503"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
