// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

const kindsSuite = `name: kinds
title: Every kind of load on machines
lab: {clients: 2, servers: 2}
web: {file_bytes: 5120}
repeats: 1
subjects:
  - name: iptables-nth
  - name: jeoul-l2dsr-tc
    params: {scheduler: [rr]}
loads:
  - {name: crr, kind: tcp_crr, concurrency: [4], duration: 200ms}
  - {name: rr, kind: tcp_rr, concurrency: [4], duration: 200ms}
  - {name: arrivals, kind: paced, concurrency: [8], rate: [40], duration: 300ms}
  - {name: names, kind: dnsperf, duration: 1s, dnsperf: {clients: [8], rate: 500, generators: [2], backends: [2]}}
`

// programsSuite needs programs of clients and servers.
const programsSuite = `name: programs
lab: {clients: 1, servers: 2}
repeats: 1
subjects: [{name: direct}]
loads:
  - {kind: iperf3, concurrency: [2], duration: 1s}
  - {kind: dnsperf, duration: 1s, dnsperf: {clients: [8], generators: [1], backends: [2]}}
`

func TestMachinesRunEveryKind(t *testing.T) {
	testenv.Target(t, "test-machines")
	for _, program := range []string{"named", "dnsperf"} {
		testenv.Program(t, program)
	}
	s := newSSHLab(t, 2, 2)
	suite, inventory := s.write(t, kindsSuite), s.ssh.Inventory(t, s.lab, "")
	far, near := filepath.Join(s.dir, "far"), filepath.Join(s.dir, "near")
	if output, err := s.bench(t.Context(), t, suite, "--inventory", inventory, "--to", far); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	s.expectNothingLeft(t)
	if output, err := s.bench(t.Context(), t, suite, "--to", near); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if diff := cmp.Diff(points(t, near), points(t, far)); diff != "" {
		t.Errorf("the table of machines differs (-namespaces +machines):\n%s", diff)
	}
	for point, valid := range points(t, far) {
		if !valid {
			t.Errorf("%s is not valid", point)
		}
	}
}

// watchKeys looks for the workers' private keys on the balancer and each server, until the returned function is called,
// which returns the modes of the files that existed.
func watchKeys(t *testing.T) func() map[string]fs.FileMode {
	ctx, cancel := context.WithCancel(t.Context())
	found := map[string]fs.FileMode{}
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			paths, _ := filepath.Glob("/var/tmp/jeoul-worker-*/tls.pem") // the pattern is valid
			for _, path := range paths {
				if info, err := os.Stat(path); err == nil {
					found[path] = info.Mode()
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() map[string]fs.FileMode {
		cancel()
		watching.Wait()
		if len(found) != 3 {
			t.Errorf("there were keys at %v; the balancer and two servers need one each", found)
		}
		return found
	}
}
