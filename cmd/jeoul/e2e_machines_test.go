// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/bench"
	"github.com/jeoul/jeoul/internal/e2e"
	"github.com/jeoul/jeoul/internal/lab"
	"github.com/jeoul/jeoul/internal/results"
	"github.com/jeoul/jeoul/internal/testenv"
)

const machinesSuite = `name: machines
title: The same on machines
lab: {clients: 2, servers: 2}
web: {file_bytes: 5120}
repeats: 1
subjects:
  - name: direct
  - name: routed
  - name: haproxy-http
    params: {threads: [1]}
  - name: iptables-nth
  - name: jeoul-l2dsr-tc
    params: {scheduler: [rr]}
loads:
  - {kind: ab, concurrency: [4], requests: 100}
  - {kind: wrk, concurrency: [4], duration: 1s}
quick:
  subjects:
    - name: haproxy-tcp
      params: {threads: [1], splice: ["off"]}
    - name: nginx-stream
      params: {threads: [1]}
    - name: nftables
    - name: jeoul-dscp-xdp
      params: {scheduler: [rr]}
    - name: jeoul-nat-xdp
      params: {scheduler: [maglev]}
    - name: jeoul-fullnat-tc
      params: {scheduler: [maglev]}
    - name: bare
  loads:
    - {kind: iperf3, concurrency: [2], duration: 1s}
`

// station is a lab whose hosts are reached by SSH, and one that stays outside of what
// is weighed: there the bench is.
type station struct {
	lab *lab.Lab
	ssh *e2e.SSH
	dir string
}

func newStation(t *testing.T, clients, servers int) *station {
	t.Helper()
	testenv.Root(t)
	for _, program := range []string{"nginx", "haproxy", "ab", "wrk", "iperf3", "iptables-nft", "nft"} {
		testenv.Program(t, program)
	}
	l, err := lab.New(t.Context(), lab.Spec{Clients: clients, Servers: servers, Attacker: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &station{lab: l, ssh: e2e.NewSSH(t), dir: t.TempDir()}
	s.ssh.Start(t, append(append([]*lab.Host{l.Balancer}, l.Clients...), l.Servers...)...)
	return s
}

// bench runs `jeoul bench run` at the station, and returns what it says.
func (s *station) bench(ctx context.Context, t *testing.T, args ...string) (string, error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	p, err := s.lab.Attacker.Start(ctx, lab.Command{Path: program, Args: append([]string{"bench", "run"}, args...),
		Env: append(os.Environ(), actAsJeoul+"=1"), Stdout: &said, Stderr: &said})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Wait()
	return said.String(), err
}

// suite writes the suite, and returns its path.
func (s *station) suite(t *testing.T) string {
	path := filepath.Join(s.dir, "machines.yaml")
	if err := os.WriteFile(path, []byte(machinesSuite), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// points are what a run measured, without the figures.
func points(t *testing.T, dir string) map[string]bool {
	t.Helper()
	run, err := results.Load(filepath.Join(dir, bench.ResultsFile))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, trial := range run.Trials {
		all[fmt.Sprintf("%s %s %v %d", trial.Subject, trial.Load, trial.Params, trial.Repeat)] = trial.Valid
		if !trial.Valid {
			t.Logf("%s, %s: %q", trial.Subject, trial.Load, trial.Notes)
			continue
		}
		for _, name := range []string{results.RequestsPerSecond, results.GigabitsPerSecond, results.ClientCPUCores} {
			if value, there := trial.Metrics[name]; there && value <= 0 {
				t.Errorf("%s, %s: %s is %g", trial.Subject, trial.Load, name, value)
			}
		}
		var connections uint64
		for _, backend := range trial.Backends {
			connections += backend.Connections
		}
		if connections == 0 || len(trial.Backends) != 2 {
			t.Errorf("%s, %s: %d connections to %d backends", trial.Subject, trial.Load, connections, len(trial.Backends))
		}
	}
	return all
}

// nothingLeft checks that the machines are as they were.
func (s *station) nothingLeft(t *testing.T) {
	t.Helper()
	if left, _ := filepath.Glob("/var/tmp/jeoul-worker-*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for _, host := range append(append([]*lab.Host{s.lab.Balancer}, s.lab.Clients...), s.lab.Servers...) {
		for command, unwanted := range map[string]string{
			"ip -4 addr":                          s.lab.VIP4.String() + "/32",
			"ip route":                            "proto 219",
			"iptables-nft-save -t nat":            s.lab.VIP4.String(),
			"sysctl net.ipv4.conf.all.arp_ignore": "= 1",
			"nft list tables":                     "jeoul",
		} {
			var said bytes.Buffer
			p, err := host.Start(t.Context(), lab.Command{Path: "/bin/sh", Args: []string{"-c", command + " 2>&1"}, Stdout: &said})
			if err != nil {
				t.Fatal(err)
			}
			if _ = p.Wait(); strings.Contains(said.String(), unwanted) {
				t.Errorf("%s: %s says\n%s", host.Name, command, said.String())
			}
		}
	}
}

func TestMachinesGiveTheSameTable(t *testing.T) {
	s := newStation(t, 2, 2)
	suite, inventory := s.suite(t), s.ssh.Inventory(t, s.lab, "")
	far, near := filepath.Join(s.dir, "far"), filepath.Join(s.dir, "near")
	for _, form := range []string{"--quick=false", "--quick"} {
		if said, err := s.bench(t.Context(), t, suite, form, "--inventory", inventory, "-o", far+form); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		s.nothingLeft(t)
	}
	if said, err := s.bench(t.Context(), t, suite, "-o", near); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if diff := cmp.Diff(points(t, near), points(t, far+"--quick=false")); diff != "" {
		t.Errorf("the table of machines differs (-namespaces +machines):\n%s", diff)
	}
	for point, valid := range points(t, far+"--quick") {
		if strings.HasPrefix(point, "bare") == valid {
			t.Errorf("%s: valid %v", point, valid)
		}
	}
}
