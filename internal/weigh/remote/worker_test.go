// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// actAsWorker is an environment variable with a directory: it makes a copy of this test binary run as a worker.
const actAsWorker = "JEOUL_TEST_ACT_AS_WORKER"

func TestMain(m *testing.M) {
	dir := os.Getenv(actAsWorker)
	if dir == "" {
		os.Exit(m.Run())
	}
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	if err := Serve(context.Background(), dir, "test", os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs a worker on a host of a lab, and returns the bench's end of the connection.
func serve(t *testing.T, host *lab.Host) (s *session, dir string, ended <-chan error) {
	t.Helper()
	dir = t.TempDir() + "/worker"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ip", "netns", "exec", host.Namespace, program)
	cmd.Env, cmd.Stderr = append(os.Environ(), actAsWorker+"="+dir), t.Output()
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	gone := make(chan struct{})
	close(gone)
	return &session{rpc: rpc.NewClient(pipe{out, in, in.Close}), ended: gone, stop: func() {}}, dir, done
}

func TestWorkerTakesEverythingBack(t *testing.T) {
	testenv.Root(t)
	l, err := lab.New(t.Context(), lab.Spec{Clients: 1, Servers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, dir, ended := serve(t, l.Balancer)
	var begun BeginReply
	for _, tc := range []struct{ build, says string }{{"other", "the worker is jeoul test, and the bench is other"},
		{"test", ""}} {
		err := s.call(t.Context(), "Begin", BeginArgs{Name: "lb", IPv4: l.Balancer.IPv4, Build: tc.build}, &begun)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Fatalf("begin as %q: %v", tc.build, err)
		}
	}
	if begun.Interface != l.Balancer.Interface || begun.Prefix.String() != "198.18.0.1/16" {
		t.Errorf("it is %+v", begun)
	}
	// The process prints a line, and the test does not wait for its end.
	var output strings.Builder
	printed := make(chan struct{})
	stop := sync.OnceFunc(func() { close(printed) }) // output may arrive in pieces, some of them empty
	p, err := s.Start(t.Context(), lab.Command{Path: "/bin/sh", Args: []string{"-c", "echo here I am; exec sleep 600"},
		Session: true,
		Stdout: writer(func(text []byte) {
			if output.Write(text); strings.Contains(output.String(), "here I am") {
				stop()
			}
		})})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-printed:
	case <-time.After(testenv.WaitLimit):
		t.Fatal("nothing was printed of the process")
	}
	if err := unixKill(p.PID()); err != nil {
		t.Errorf("the process is not there: %v", err)
	}
	if session, err := unix.Getsid(p.PID()); err != nil || session != p.PID() {
		t.Errorf("process %d was to lead a session and is in %d: %v", p.PID(), session, err)
	}
	if _, err := s.Call(t.Context(), "no-such-task", []byte("{}")); err == nil ||
		!strings.Contains(err.Error(), lab.ErrNoTask.Error()) {
		t.Errorf("an unknown task: %v", err)
	}
	// The connection breaks.
	if err := s.rpc.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testenv.WaitLimit):
		t.Fatal("the worker did not end")
	}
	if err := unixKill(p.PID()); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process is still there: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	if err := s.call(t.Context(), "Ping", None{}, &None{}); !errors.Is(err, ErrLost) {
		t.Errorf("a call after the end: %v", err)
	}
}

// unixKill returns nil if a process exists.
func unixKill(pid int) error { return syscall.Kill(pid, 0) }

type writer func([]byte)

func (w writer) Write(text []byte) (int, error) {
	w(text)
	return len(text), nil
}

var _ io.Writer = writer(nil)

func TestSSHCommand(t *testing.T) {
	h := Host{Address: "192.0.2.1", Port: 2222, User: "bench", Key: "/k", Options: []string{"-o", "ProxyJump=j"},
		Become: true}
	got := strings.Join(sshCommand(h, "true"), " ")
	want := "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3 " +
		"-p 2222 -l bench -i /k -o IdentitiesOnly=yes -o ProxyJump=j -- 192.0.2.1 sudo -n true"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := quote("it's"); got != `'it'\''s'` {
		t.Errorf("quoted %s", got)
	}
}
