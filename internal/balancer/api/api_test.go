// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// serve runs a server on a fresh socket and returns its path; stop ends it and
// waits for it.
func serve(t *testing.T, status func() (ops.Status, error)) (path string, stop func()) {
	t.Helper()
	return serveAll(t, Balancer{Status: status})
}

func serveAll(t *testing.T, b Balancer) (path string, stop func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "new", "jeoul.sock")
	listener, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, listener, b) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
	return path, stop
}

func TestStatus(t *testing.T) {
	want := &ops.Status{
		Version: "v1", PID: 7, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Config: "/etc/x.yaml",
		Interface: "eth0", Hook: ops.Hook{Name: lb.HookXDP, Driver: "veth", Reason: "why"}, Generation: 3,
		Problems: []string{"the interface is down"},
		Services: []ops.Service{{Name: "web", VIP: netip.MustParseAddr("192.0.2.9"), Port: 80, Protocol: lb.TCP,
			Mode: lb.L2DSR, Scheduler: lb.Maglev, Hash: lb.HashFlow, Backends: []ops.Backend{{Name: "web01",
				Address: netip.MustParseAddr("192.0.2.1"), Port: 80, Weight: 2, State: lb.Up, Neighbour: "reachable",
				MAC: "02:00:00:00:00:01", Packets: 1, Bytes: 2, Connections: 3}}}},
		Outcomes: []ops.Outcome{{Name: "forwarded", Packets: 4, Help: "sent on"}},
	}
	path, stop := serve(t, func() (ops.Status, error) { return *want, nil })
	defer stop()
	got, err := NewClient(path).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestStatusFails(t *testing.T) {
	path, stop := serve(t, func() (ops.Status, error) { return ops.Status{}, errors.New("no counters") })
	defer stop()
	_, err := NewClient(path).Status(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), ": no counters") {
		t.Errorf("error = %v, want the server's", err)
	}
}

func TestUnknownPathAndMethod(t *testing.T) {
	path, stop := serve(t, func() (ops.Status, error) { return ops.Status{}, nil })
	defer stop()
	client := NewClient(path).http
	for target, want := range map[string]int{"/": http.StatusNotFound, statusPath: http.StatusMethodNotAllowed} {
		response, err := client.Post("http://jeoul"+target, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("POST %s: %s, want %d", target, response.Status, want)
		}
	}
}

func TestSocketMode(t *testing.T) {
	path, stop := serve(t, func() (ops.Status, error) { return ops.Status{}, nil })
	defer stop()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != socketMode {
		t.Errorf("mode = %o, want %o", got, socketMode)
	}
}

func TestSocketGoesWithTheServer(t *testing.T) {
	path, stop := serve(t, func() (ops.Status, error) { return ops.Status{}, nil })
	stop()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestLiveSocketIsNotStolen(t *testing.T) {
	path, stop := serve(t, func() (ops.Status, error) {
		return ops.Status{PID: 1, Hook: ops.Hook{Name: lb.HookTC}}, nil
	})
	defer stop()
	if _, err := Listen(t.Context(), path); !errors.Is(err, ErrInUse) {
		t.Errorf("error = %v, want ErrInUse", err)
	}
	if got, err := NewClient(path).Status(t.Context()); err != nil || got.PID != 1 {
		t.Errorf("the first server answers %v, %v", got, err)
	}
}

// leaveStaleSocket leaves a socket file as a killed process does.
func leaveStaleSocket(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dead.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	return path
}

func TestDeadSocketIsReplaced(t *testing.T) {
	listener, err := Listen(t.Context(), leaveStaleSocket(t))
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
}

func TestOtherFileIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("error = %v, want one about a file that is not a socket", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "mine" {
		t.Errorf("the file holds %q, %v", data, err)
	}
}

func TestClientErrors(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage.sock")
	listener, err := net.Listen("unix", garbage)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	tests := map[string]struct {
		path string
		want error
		text string
	}{
		"no socket":   {filepath.Join(t.TempDir(), "none.sock"), ErrNotRunning, "jeoul run -c FILE"},
		"dead socket": {leaveStaleSocket(t), ErrNotRunning, "jeoul run -c FILE"},
		"not ours":    {garbage, nil, "cannot be understood"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := NewClient(test.path).Status(t.Context())
			if err == nil || test.want != nil && !errors.Is(err, test.want) ||
				!strings.Contains(err.Error(), test.text) {
				t.Errorf("error = %v, want %v with %q", err, test.want, test.text)
			}
			if err != nil && !strings.Contains(err.Error(), test.path) {
				t.Errorf("error %v does not name the socket", err)
			}
		})
	}
	if err := NewClient("x").explainError(&net.OpError{Err: os.NewSyscallError("connect", syscall.EACCES)}); !errors.Is(err,
		ErrNoRights) {
		t.Errorf("EACCES gives %v, want ErrNoRights", err)
	}
}
