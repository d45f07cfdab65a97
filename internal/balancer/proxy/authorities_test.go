// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy/process"
	"github.com/jeoul/jeoul/internal/test/testcert"
)

// fakeMaster answers for a HAProxy that reads one file at each reload.
type fakeMaster struct {
	file string

	mu      sync.Mutex
	loaded  []string
	refuses bool
	failed  int
}

// firstWorker is the PID of the first worker, which is larger than any process has.
const firstWorker = 1 << 23

// serve answers at a socket until the test ends.
func (f *fakeMaster) serve(t *testing.T, socket string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { listener.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			command, _ := io.ReadAll(conn)
			io.WriteString(conn, f.answer(strings.TrimSpace(string(command))))
			conn.Close()
		}
	}()
}

func (f *fakeMaster) answer(command string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch _, of, _ := strings.Cut(command, " "); {
	case command == "reload" && f.refuses:
		f.failed++
	case command == "reload":
		text, _ := os.ReadFile(f.file)
		f.loaded, f.failed = append(f.loaded, string(text)), 0
	case command == "show proc":
		return fmt.Sprintf("%d master %d [failed: %d]\n# workers\n%d worker 0\n", os.Getpid(), len(f.loaded), f.failed,
			firstWorker+len(f.loaded))
	case of == "show info":
		return fmt.Sprintf("Name: HAProxy\nPid: %s\n", strings.TrimPrefix(strings.Fields(command)[0], "@!"))
	}
	return "\n"
}

func (f *fakeMaster) refuse(refuses bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuses = refuses
}

// expect fails the test unless these are the contents that the reloads so far have read.
func (f *fakeMaster) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff(want, f.loaded); diff != "" {
		t.Errorf("%s, the reloads have read (- want, + got):\n%s", when, diff)
	}
}

// verifiedService is a service whose backends are verified by a file's authorities.
func verifiedService(path string) Desired {
	return simple(lb.Proxy{Speaks: lb.SpeaksHTTP, BackendTLS: lb.BackendTLSVerified, BackendCA: path})
}

// TestAuthoritiesAreCopied: HAProxy reads a copy of backends' authorities, which no later state of the file makes
// unusable, and another file needs a reload.
func TestAuthoritiesAreCopied(t *testing.T) {
	t.Parallel()
	r, err := Render(verifiedService("/etc/ca.pem"), golden)
	if err != nil {
		t.Fatal(err)
	}
	copied := golden.authorities("/etc/ca.pem")
	if diff := cmp.Diff(map[string]string{copied: "/etc/ca.pem"}, r.Authorities); diff != "" {
		t.Errorf("authorities (- want, + got):\n%s", diff)
	}
	if text := r.String(); !strings.Contains(text, "ca-file "+copied) || strings.Contains(text, "/etc/ca.pem") {
		t.Errorf("the configuration names another file:\n%s", text)
	}
	other, err := Render(verifiedService("/etc/other.pem"), golden)
	if err != nil {
		t.Fatal(err)
	}
	if _, live := compareRenderings(r, other, nil); live {
		t.Error("another file of authorities needs no reload")
	}
}

// TestRenewsAuthorities: HAProxy is reloaded with authorities that have changed, once, and keeps those before where the
// file has none or HAProxy refuses them.
func TestRenewsAuthorities(t *testing.T) {
	t.Parallel()
	var texts []string
	for range 2 {
		text, err := os.ReadFile(testcert.NewAuthority(t).File)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	path := filepath.Join(t.TempDir(), "ca.pem")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(texts[0])
	e, fake := newFakeEngine(t, verifiedService(path))
	renew := func(want string) {
		t.Helper()
		if err := e.RenewCertificates(t.Context()); err == nil && want != "" || err != nil && want == "" ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	renew("")
	fake.expect(t, "unchanged")
	write(texts[1])
	renew("")
	renew("")
	fake.expect(t, "changed", texts[1])
	write("")
	renew("has no certificate")
	var refused RenewalErrors
	if err := e.RenewCertificates(t.Context()); !errors.As(err, &refused) || refused[path] == nil {
		t.Errorf("error %v, want one about %s", err, path)
	}
	write(texts[0])
	fake.refuse(true)
	renew("goes on with the configuration before")
	if text, err := os.ReadFile(fake.file); string(text) != texts[1] {
		t.Errorf("after a reload that failed, the copy is %q, %v", text, err)
	}
	fake.refuse(false)
	fake.expect(t, "refused", texts[1])
	renew("")
	fake.expect(t, "changed again", texts[1], texts[0])
}

// newFakeEngine returns an engine whose HAProxy is fake and has a desired state; that has one file of authorities.
func newFakeEngine(t *testing.T, d Desired) (*engine, *fakeMaster) {
	t.Helper()
	made, err := New(Options{Dir: t.TempDir() + "/proxy"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Detach() })
	e := made.(*engine)
	r, err := Render(d, e.host)
	if err != nil {
		t.Fatal(err)
	}
	c := &candidate{rendering: r, certificates: map[string]*certificate{}, authorities: map[string]*authorities{}}
	if err := e.readCertificates(d, c); err != nil {
		t.Fatal(err)
	}
	back, err := e.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer back()
	if err := e.write(c); err != nil {
		t.Fatal(err)
	}
	e.running = &savedState{Rendering: r, Complete: true, Served: c.served(), Authorities: c.authoritySums()}
	if e.running.Master, err = process.Of(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	f := &fakeMaster{file: sortedKeys(r.Authorities)[0]}
	f.serve(t, e.host.master())
	return e, f
}
