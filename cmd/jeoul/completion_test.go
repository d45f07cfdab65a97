// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/posener/complete"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/watchcmd"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestLiveBackends: a shell gets the backends of the balancer that the command line names, and none if no daemon
// answers.
func TestLiveBackends(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "jeoul.sock")
	if names := watchcmd.PredictBackends(complete.Args{All: []string{"backend", "drain", "--socket",
		socket}}); len(names) != 0 {
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
				{Name: "web", Protocol: lb.TCP, Mode: lb.NAT, Scheduler: lb.Maglev, Hash: lb.HashFlow,
					Backends: []ops.Backend{{Name: "web01", State: lb.Up}, {Name: "web02"}}},
				{Name: "dns", Protocol: lb.UDP, Mode: lb.NAT, Scheduler: lb.Maglev, Hash: lb.HashFlow,
					Backends: []ops.Backend{{Name: "ns1"}}}}}, nil
		}})
	}()
	t.Cleanup(func() {
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	want := []string{"web/web01", "web/web02", "dns/ns1"}
	for _, words := range [][]string{{"drain", "--socket", socket}, {"drain", "--socket=" + socket, "web"}} {
		if names := watchcmd.PredictBackends(complete.Args{All: words}); !slices.Equal(names, want) {
			t.Errorf("%q: %q, want %q", words, names, want)
		}
	}
}

// TestRepeatedArguments: each of several names is completed, under every name of the command.
func TestRepeatedArguments(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "jeoul.sock")
	_, stop := cmdtest.ServeFake(t, socket, cmdtest.Checked())
	defer stop()
	for line, want := range map[string]string{
		"jeoul get services --socket " + socket + " w":                 "web\nweb6\n",
		"jeoul get backend --socket " + socket + " web/web01 web6/":    "web6/web01\n",
		"jeoul get events --socket " + socket + " web/web01 web web/w": "web/web01\nweb/web03\n",
	} {
		t.Setenv("COMP_LINE", line)
		var stdout, stderr bytes.Buffer
		if code := execute(t.Context(), nil, &stdout, &stderr); code != exitOK || stdout.String() != want {
			t.Errorf("%s: status %d, %q, want %q; %s", line, code, &stdout, want, &stderr)
		}
	}
}
