// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/api/access"
	"github.com/jeoul/jeoul/internal/balancer/metrics"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestDenials: each is counted, by the credential or role that was lacking, and the log has a line each ten seconds at
// most, with the number of those that have none.
func TestDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		shown := metrics.New(func() (ops.Status, error) { return ops.Status{}, nil }, 0)
		d := &denials{metrics: shown, log: slog.New(slog.NewTextHandler(&log, nil))}
		for range 500 {
			d.note("192.0.2.1", fmt.Errorf("%w: send a token", access.ErrUnknown))
		}
		d.note("192.0.2.2", access.ErrNoRole)
		time.Sleep(denialsEvery)
		d.note("192.0.2.3", access.ErrUnknown)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "from 192.0.2.1: credentials are needed: send a token") ||
			!strings.Contains(lines[1], "from 192.0.2.3") || !strings.Contains(lines[1], "and 500 others since") {
			t.Errorf("the log:\n%s", log.String())
		}
		scrape := httptest.NewRecorder()
		shown.Handler().ServeHTTP(scrape, httptest.NewRequest("GET", metrics.Path, nil))
		for _, want := range []string{`jeoul_api_denied_total{lacking="credentials"} 501`,
			`jeoul_api_denied_total{lacking="role"} 1`} {
			if !strings.Contains(scrape.Body.String(), want+"\n") {
				t.Errorf("the scrape has no %s", want)
			}
		}
	})
}
