// SPDX-License-Identifier: Apache-2.0

// Package e2e tests Kubernetes services on a real cluster in a laboratory: `make test-kubernetes`.
package e2e

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/klog/v2"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/test/kubernetes/cluster"
	"github.com/jeoul/jeoul/test/kubernetes/components"
)

// target is the target in the Makefile that runs these tests.
const target = "test-kubernetes"

// waitTimeout bounds every wait for a change that takes seconds.
var waitTimeout = testenv.WaitLimit

func TestMain(m *testing.M) {
	components.Run()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go's
	code := m.Run()
	shared.close()
	os.Exit(code)
}

// shared is the cluster that all tests use but those that damage theirs.
var shared sharedCluster

type sharedCluster struct {
	once sync.Once
	*cluster.Cluster
	err error
}

func (s *sharedCluster) close() {
	if s.Cluster != nil {
		s.Cluster.Close()
	}
}

// sharedWith returns the shared cluster: three nodes whose kube-proxy uses iptables, and two clients.
func sharedWith(t *testing.T) *cluster.Cluster {
	t.Helper()
	testenv.Target(t, target)
	testenv.Root(t)
	shared.once.Do(func() {
		shared.Cluster, shared.err = cluster.New(t.Context(), cluster.Options{Nodes: 3, Clients: 2})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.Cluster
}

// newCluster starts a cluster for a test.
func newCluster(t *testing.T, options cluster.Options) *cluster.Cluster {
	t.Helper()
	return newClusterOf(t, target, options)
}

// newClusterOf is newCluster for a test of another target.
func newClusterOf(t *testing.T, target string, options cluster.Options) *cluster.Cluster {
	t.Helper()
	testenv.Target(t, target)
	testenv.Root(t)
	c, err := cluster.New(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// binary returns the path of a program that the Makefile has built.
func binary(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("JEOUL_TEST_BINARIES")
	if dir == "" {
		dir = "../../../bin"
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; `make %s` builds it", err, target)
	}
	return path
}
