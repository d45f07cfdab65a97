// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/posener/complete"

	"github.com/jeoul/jeoul/internal/api"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/ops"
)

// TestLiveBackends: a shell is told the backends of the balancer that the command line names,
// and none where no daemon answers.
func TestLiveBackends(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "jeoul.sock")
	if names := liveBackends(complete.Args{All: []string{"backend", "drain", "--socket", socket}}); len(names) != 0 {
		t.Errorf("without a daemon: %q", names)
	}
	listener, err := api.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- api.Serve(t.Context(), listener, api.Balancer{Status: func() (ops.Status, error) {
			return ops.Status{Hook: ops.Hook{Name: lb.HookTC}, Services: []ops.Service{
				{Name: "web", Protocol: lb.TCP, Mode: lb.NAT, Scheduler: lb.Maglev, Hash: lb.HashFlow, Backends: []ops.Backend{{Name: "web01", State: lb.Up}, {Name: "web02"}}},
				{Name: "dns", Protocol: lb.UDP, Mode: lb.NAT, Scheduler: lb.Maglev, Hash: lb.HashFlow, Backends: []ops.Backend{{Name: "ns1"}}}}}, nil
		}})
	}()
	t.Cleanup(func() {
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	want := []string{"web/web01", "web/web02", "dns/ns1"}
	for _, words := range [][]string{{"drain", "--socket", socket}, {"drain", "--socket=" + socket, "web"}} {
		if names := liveBackends(complete.Args{All: words}); !slices.Equal(names, want) {
			t.Errorf("%q: %q, want %q", words, names, want)
		}
	}
}
