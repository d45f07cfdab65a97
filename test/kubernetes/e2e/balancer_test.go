// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// log is the output of a program.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// fields are a mapping of a configuration.
type fields map[string]any

// balancer is `jeoul run` on the balancer of a cluster.
type balancer struct {
	t       *testing.T
	host    *lab.Host
	dir     string
	daemon  *lab.Process
	program string
	log     log
}

// startBalancer starts one with services of its own file, and ends it with the test.
func startBalancer(t *testing.T, host *lab.Host, services ...fields) *balancer {
	t.Helper()
	return startConfigured(t, host, fields{"services": append([]fields{}, services...)})
}

// startConfigured is startBalancer with a configuration that has more than services.
func startConfigured(t *testing.T, host *lab.Host, configuration fields) *balancer {
	t.Helper()
	b := &balancer{t: t, host: host, dir: makeShortDir(t, host.Dir), program: binary(t, "jeoul")}
	configuration["interface"], configuration["socket"] = host.Interface, b.socket()
	text, err := yaml.Marshal(configuration)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.path("jeoul.yaml"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	b.mountState()
	b.daemon = b.start(&b.log, b.program, "run", "-c", b.path("jeoul.yaml"),
		"--state-dir", b.stateDir(), "--store-dir", b.path("store"))
	t.Cleanup(func() {
		b.daemon.Stop(context.Background())
		if err := unix.Unmount(b.stateDir(), unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", b.stateDir(), err)
		}
		if t.Failed() {
			t.Logf("the balancer's log:\n%s", b.log.String())
		}
	})
	b.eventually("the balancer answers", func(*ops.Status) bool { return true })
	return b
}

// makeShortDir makes a directory whose name has as few bytes as possible: those of unix sockets below it, which are the
// balancer's and HAProxy's, have at most 107.
func makeShortDir(t *testing.T, parent string) string {
	t.Helper()
	for i := 0; ; i++ {
		dir := filepath.Join(parent, "j"+strconv.Itoa(i))
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			return dir
		}
		if !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
}

func (b *balancer) path(name string) string { return filepath.Join(b.dir, name) }

func (b *balancer) stateDir() string { return b.path("s") }

// mountState gives the balancer's state a file system in memory, as /run has, where the package keeps it: snapshots are
// large, and must not wait for the disk of etcd.
func (b *balancer) mountState() {
	b.t.Helper()
	if err := os.Mkdir(b.stateDir(), 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", b.stateDir(), "tmpfs", 0, "mode=0700"); err != nil {
		b.t.Fatalf("mount a file system in memory on %s: %v", b.stateDir(), err)
	}
}

func (b *balancer) socket() string { return b.path("jeoul.sock") }

// start starts a program beside the balancer.
func (b *balancer) start(out *log, program string, arguments ...string) *lab.Process {
	b.t.Helper()
	process, err := b.host.Start(context.WithoutCancel(b.t.Context()),
		lab.Command{Path: program, Args: arguments, Env: os.Environ(), Dir: b.dir, Stdout: out, Stderr: out})
	if err != nil {
		b.t.Fatal(err)
	}
	return process
}

// eventually waits until the balancer's status is as it should be.
func (b *balancer) eventually(what string, ok func(*ops.Status) bool) {
	b.t.Helper()
	testenv.Eventually(b.t, waitTimeout, what, func() bool {
		select {
		case <-b.daemon.Done():
			b.t.Fatalf("the balancer ended: %v\n%s", b.daemon.Wait(), b.log.String())
		default:
		}
		status, err := api.NewClient(b.socket()).Status(b.t.Context())
		return err == nil && ok(status)
	})
}

// allUp reports whether there are services, and all their backends take new flows.
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
