// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// watching is a running follower, with its output and its messages.
type watching struct {
	out, says cmdtest.SyncBuffer
	done      chan error
	cancel    context.CancelFunc
}

func watchBackends(t *testing.T, s *cmdtest.FakeBalancer, format string, again time.Duration,
	names ...string) *watching {
	t.Helper()
	client, err := s.Flags.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	g := &watching{done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	g.cancel = cancel
	t.Cleanup(cancel)
	w := &follower[ops.ServiceBackend]{client: client,
		query: query[ops.ServiceBackend]{names, func(ops.ServiceBackend) bool { return true }},
		out:   &getWriter[ops.ServiceBackend]{to: &g.out, kind: backendKind, format: format}, notices: &g.says,
		retry: time.Millisecond, retryLimit: again}
	go func() { g.done <- w.watch(ctx) }()
	return g
}

// wants waits until a number of printed lines contain a text.
func (g *watching) wants(t *testing.T, lines int, says string) {
	t.Helper()
	of := regexp.MustCompile(`(?m)^.*(` + says + `).*$`)
	testenv.Eventually(t, e2e.WaitLimit, says,
		func() bool { return len(of.FindAllString(g.out.String(), -1)) == lines })
}

// ended waits for the follower's end.
func (g *watching) ended(t *testing.T) error {
	t.Helper()
	select {
	case err := <-g.done:
		return err
	case <-time.After(e2e.WaitLimit):
		t.Fatalf("it goes on; it has said %s", g.says.String())
		return nil
	}
}

// TestWatch: a row is printed when its object has changed, or was added or removed, and not for counters. A daemon that
// comes back is watched again; one that does not come back ends the follower.
func TestWatch(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "jeoul.sock")
	s, stop := cmdtest.ServeFake(t, socket, cmdtest.Checked())
	defer stop()
	g := watchBackends(t, s, "text", e2e.WaitLimit, "web")
	one := watchBackends(t, s, "json", 100*time.Millisecond, "web/web01")
	g.wants(t, 3, `web/\S+ +192`)
	one.wants(t, 1, `"state":"up"`)

	web := func(change func(*ops.Service)) {
		s.Change(func(status *ops.Status) { change(&status.Services[0]) })
		s.Log.Info("something has changed", events.About{Kind: events.KindHealth, Service: "web"}.Attr())
	}
	web(func(web *ops.Service) { web.Backends[0].Packets += 1000; web.Backends[0].Neighbour = "stale" })
	web(func(web *ops.Service) { web.Backends[0].State = lb.Draining })
	g.wants(t, 1, `web/web01 .* draining`)
	one.wants(t, 1, `^\{"service":"web","name":"web01",.*"state":"draining"`)
	web(func(web *ops.Service) { web.Backends = web.Backends[1:] })
	g.wants(t, 1, `web/web01 .* removed`)
	one.wants(t, 1, `^\{"removed":\{"service":"web","name":"web01"`)
	g.wants(t, 5, `web/`) // three at first, and two changes
	one.cancel()
	if err := one.ended(t); err != nil {
		t.Errorf("interrupted: %v", err)
	}

	stop()
	testenv.Eventually(t, e2e.WaitLimit, "it says so", func() bool {
		return strings.Contains(g.says.String(), "to come back")
	})
	again, stop := cmdtest.ServeFake(t, socket, cmdtest.Checked())
	defer stop()
	g.wants(t, 2, `web/web01 .* up`)
	testenv.Eventually(t, e2e.WaitLimit, "it says so", func() bool {
		return strings.Contains(g.says.String(), "answers again")
	})
	again.Change(func(status *ops.Status) { status.Services[0].Backends[0].State = lb.Out })
	again.Log.Info("something has changed")
	g.wants(t, 1, `web/web01 .* out`)
	g.cancel()
	if err := g.ended(t); err != nil {
		t.Errorf("interrupted: %v", err)
	}

	last := watchBackends(t, again, "name", 100*time.Millisecond, "web/web01")
	last.wants(t, 1, `web/web01`)
	stop()
	cmdtest.WantError(t, last.ended(t), "has gone, and has not come back within 100ms")
}
