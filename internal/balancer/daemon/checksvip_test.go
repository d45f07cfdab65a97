// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/checknet"
	"github.com/jeoul/jeoul/internal/balancer/datapath/checkpath"
	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestChecksByVIPProblem: checks by the VIP that cannot be made are a problem of the status until they can, also while
// that is tried again, as long as a service has such checks.
func TestChecksByVIPProblem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opened := make(chan error)
		c := &healthChecks{vip: &checksVIP{log: slog.New(slog.DiscardHandler), open: func() (*checkpath.Checks, error) {
			if err := <-opened; err != nil {
				return nil, err
			}
			return &checkpath.Checks{}, nil
		}}}
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			for _, via := range []lb.Via{lb.ViaVIP, lb.ViaAddress} {
				status := ops.Status{Services: []ops.Service{{Name: "a"}, {Name: "b", Checks: []ops.Check{{Via: via}}}}}
				c.FillStatus(&status)
				got := strings.Join(status.Problems, "; ")
				if expected := want != "" && via == lb.ViaVIP; (got != "") != expected || !strings.Contains(got, want) &&
					expected {
					t.Errorf("%s, via %s: the problems are %q, want %q", when, via, got, want)
				}
			}
		}
		ask := func(want error) {
			t.Helper()
			if err := c.vip.Ping(t.Context(), lb.BackendKey{}); !errors.Is(err, want) {
				t.Errorf("the check says %v, want %v", err, want)
			}
		}
		expect("before the first check", "")
		ask(health.ErrForNow)
		expect("while the sockets are made", "")
		opened <- checknet.ErrNoRights
		expect("without the right", checknet.ErrNoRights.Error())
		ask(health.ErrNoPath)
		time.Sleep(reopenAfter + time.Second)
		ask(health.ErrForNow)
		expect("at the next attempt", checknet.ErrNoRights.Error())
		opened <- nil
		expect("with the right", "")
	})
}
