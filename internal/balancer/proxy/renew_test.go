// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
	"github.com/jeoul/jeoul/internal/balancer/proxy/process"
	"github.com/jeoul/jeoul/internal/test/testcert"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestRenewsLargeChains: a chain is handed over by the socket up to its bound, and a larger one by a reload.
func TestRenewsLargeChains(t *testing.T) {
	t.Parallel()
	r, ca := newTestEngine(t), testcert.NewAuthority(t)
	path := filepath.Join(t.TempDir(), "a.pem")
	writePEM(t, path, ca.Config(t, "a.test", time.Hour))
	s := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP, Certificates: []string{path}}, newBackend(t, "w1"))
	r.apply(s)
	authority, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	for i, size := range []int{master.MaxPayload, 2 * master.MaxPayload} {
		own := encoded(t, ca.Config(t, "a.test", time.Duration(i+2)*time.Hour))
		chain := bytes.Repeat(authority, (size-len(own))/len(authority))
		if err := os.WriteFile(path, append(own, chain...), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.RenewCertificates(t.Context()); err != nil {
			t.Fatal(err)
		}
		answer, _ := mustGet(t, client(t, ca, s), "https://a.test/")
		if left := time.Until(answer.TLS.PeerCertificates[0].NotAfter); left < time.Duration(i+1)*time.Hour {
			t.Errorf("with %d bytes, the certificate is valid for %v: it is not the last", len(own)+len(chain), left)
		}
		if n := r.State().Reloads; n != i {
			t.Errorf("with %d bytes: %d reloads, want %d", len(own)+len(chain), n, i)
		}
	}
}

// TestDiesUnwatched: HAProxy is killed while no engine watches it. The next engine ends the workers that it has left,
// starts another one, and counts on.
func TestDiesUnwatched(t *testing.T) {
	t.Parallel()
	r := newTestEngine(t)
	s := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP}, newBackend(t, "w1"))
	r.apply(s)
	c := client(t, nil, s)
	mustGet(t, c, "http://a.test/")
	r.awaitCounts(s, 1)
	before := r.State()
	workers := children(t, before.PID)
	if err := r.Detach(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	id := process.ID{PID: before.PID}
	testenv.Eventually(t, testenv.WaitLimit, "HAProxy has ended", func() bool {
		return !id.IsRunning() && syscall.Kill(before.PID, 0) != nil
	})
	r.open()
	r.apply(s)
	if now := r.State(); now.PID == before.PID || now.PID == 0 {
		t.Errorf("state %+v", now)
	}
	c.CloseIdleConnections()
	if _, text := mustGet(t, c, "http://a.test/"); !strings.HasPrefix(text, "w1") {
		t.Errorf("served %q", text)
	}
	testenv.Eventually(t, testenv.WaitLimit, "the workers that were left have ended", func() bool {
		return !slices.ContainsFunc(workers, process.ID.IsRunning)
	})
	r.awaitCounts(s, 2)
}
