// SPDX-License-Identifier: Apache-2.0

package cmdtest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/sources"
)

// FakeBalancer serves the API with a status of the test's on its own socket.
type FakeBalancer struct {
	Flags  cmdkit.DaemonFlags
	Log    *slog.Logger
	events *events.Log

	mu     sync.Mutex
	status *ops.Status
}

// Change changes its status.
func (s *FakeBalancer) Change(change func(*ops.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.status)
}

// ServeFake serves a status, and returns a function that stops the server.
func ServeFake(t *testing.T, socket string, status *ops.Status) (s *FakeBalancer, stop func()) {
	t.Helper()
	happened := events.NewLog(64, time.Unix(1, 0))
	s = &FakeBalancer{Flags: cmdkit.DaemonFlags{Socket: socket}, Log: slog.New(happened.Handler(slog.DiscardHandler)),
		events: happened, status: status}
	listener, err := api.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "jeoul.yaml")
	if err := os.WriteFile(file,
		[]byte("interface: eth0\nservices: [{name: web, vip: 192.0.2.100, port: 80, backends: [{name: web01, address: 192.0.2.1}, {name: web03, address: 192.0.2.13, weight: 0}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	configuration, err := sources.Open(file, filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() {
		served <- api.Serve(ctx, listener, api.Balancer{Events: happened, Sources: configuration,
			Operations: func() (ops.Operations, error) { return s.status.Operations, nil },
			Status: func() (ops.Status, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				copied := *s.status
				copied.Services = nil
				for _, service := range s.status.Services {
					service.Backends = append([]ops.Backend{}, service.Backends...)
					copied.Services = append(copied.Services, service)
				}
				return copied, nil
			}})
	}()
	return s, sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
