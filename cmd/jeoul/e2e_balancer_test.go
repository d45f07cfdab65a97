// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// entry is a part of a configuration.
type entry map[string]any

// newLab builds a laboratory, which is removed with the test.
func newLab(t *testing.T, spec lab.Spec) *lab.Lab {
	t.Helper()
	testenv.Root(t)
	l, err := lab.New(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// jeoul starts this program on a host. It does not end with the test's context,
// which ends before the cleanup does.
func jeoul(t *testing.T, host *lab.Host, log *cmdtest.SyncBuffer, arguments ...string) *lab.Process {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process, err := host.Start(context.WithoutCancel(t.Context()), lab.Command{Path: executable, Args: arguments,
		Env: append(os.Environ(), actAsJeoul+"=1"), Stdout: log, Stderr: log})
	if err != nil {
		t.Fatal(err)
	}
	return process
}

// balancer is `jeoul run` on the balancer host of a laboratory.
type balancer struct {
	host   *lab.Host
	config string
	socket string
	daemon *lab.Process
	log    cmdtest.SyncBuffer
}

// newBalancer prepares a balancer, which the caller configures and starts.
func newBalancer(t *testing.T, host *lab.Host) *balancer {
	t.Helper()
	b := &balancer{host: host, config: filepath.Join(host.Dir, "jeoul.yaml"),
		socket: filepath.Join(host.Dir, "jeoul.sock")}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the balancer's log:\n%s", b.log.String())
		}
	})
	return b
}

// configure writes the configuration, and adds the interface, the hook and the socket. All hosts of a laboratory are on
// one link; its backends of mode nat are set up to answer clients through the balancer.
func (b *balancer) configure(t *testing.T, hook lb.Hook, configuration entry) {
	t.Helper()
	configuration["interface"] = b.host.Interface
	configuration["hook"] = string(hook)
	configuration["socket"] = b.socket
	services, _ := configuration["services"].([]entry)
	for _, service := range services {
		if service["mode"] == string(lb.NAT) {
			service["hairpin"] = false
		}
	}
	if err := os.WriteFile(b.config, yamlOf(t, configuration), 0o644); err != nil {
		t.Fatal(err)
	}
}

func yamlOf(t *testing.T, configuration entry) []byte {
	t.Helper()
	text, err := yaml.Marshal(configuration)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// start runs the daemon and waits until every backend is up.
func (b *balancer) start(t *testing.T) {
	t.Helper()
	b.daemon = jeoul(t, b.host, &b.log, b.arguments()...)
	b.eventually(t, "every backend is up", allUp)
}

// arguments are the arguments of the daemon.
func (b *balancer) arguments() []string {
	return []string{"run", "-c", b.config, "--state-dir", filepath.Join(b.host.Dir, "state"), "--store-dir", b.store()}
}

// store is the directory of the API's configuration.
func (b *balancer) store() string { return filepath.Join(b.host.Dir, "store") }

// allUp reports whether every backend of every service is up.
func allUp(status *ops.Status) bool {
	for _, service := range status.Services {
		for _, backend := range service.Backends {
			if backend.State != lb.Up {
				return false
			}
		}
	}
	return len(status.Services) > 0
}

// sendSIGHUP makes the daemon read its file again.
func (b *balancer) sendSIGHUP(t *testing.T) {
	t.Helper()
	if err := b.daemon.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// commandBalancer runs a command about the balancer as a whole.
func (b *balancer) commandBalancer(t *testing.T, words ...string) {
	t.Helper()
	var out cmdtest.SyncBuffer
	if err := jeoul(t, b.host, &out, append(append([]string{"balancer"}, words...), "--socket",
		b.socket)...).Wait(); err != nil {
		t.Fatalf("jeoul balancer %q: %v\n%s", words, err, out.String())
	}
}

// stop ends a program of ours, which must undo everything and exit with status 0.
func stop(t *testing.T, process *lab.Process) {
	t.Helper()
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Fatalf("it did not end well: %v", err)
	}
}

// kill ends a program as `kill -9` does.
func kill(t *testing.T, process *lab.Process) {
	t.Helper()
	if err := process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-process.Done()
}

// eventually waits until ok accepts the daemon's status. If the daemon ends during that time, the test fails
// immediately.
func (b *balancer) eventually(t *testing.T, what string, ok func(*ops.Status) bool) {
	t.Helper()
	b.within(t, e2e.WaitLimit, what, ok)
}

// within is eventually with another bound.
func (b *balancer) within(t *testing.T, bound time.Duration, what string, ok func(*ops.Status) bool) {
	t.Helper()
	testenv.Eventually(t, bound, what, func() bool {
		select {
		case <-b.daemon.Done():
			t.Fatalf("while waiting until %s, the balancer ended: %v", what, b.daemon.Wait())
		default:
		}
		status, err := api.NewClient(b.socket).Status(t.Context())
		return err == nil && ok(status)
	})
}

// status returns the daemon's status.
func (b *balancer) status(t *testing.T) *ops.Status {
	t.Helper()
	// Not the test's context, which ends before its cleanup.
	status, err := api.NewClient(b.socket).Status(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// outcomes returns the number of packets of each outcome, by name.
func (b *balancer) outcomes(t *testing.T) map[string]uint64 {
	t.Helper()
	counts := map[string]uint64{}
	for _, outcome := range b.status(t).Outcomes {
		counts[outcome.Name] = outcome.Packets
	}
	return counts
}

// ended lists the outcomes with packets, for a person.
func ended(counts map[string]uint64) string {
	var text strings.Builder
	for name, packets := range counts {
		if packets > 0 {
			fmt.Fprintf(&text, " %s %d", name, packets)
		}
	}
	return text.String()
}
