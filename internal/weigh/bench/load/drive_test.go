// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

// shell is a kind whose generator is a shell script that prints "REQUESTS MILLISECONDS [DRAINED]", Drained in
// milliseconds: Drive must not depend on a real generator.
type shell struct{ script string }

func (shell) Name() string                          { return "shell" }
func (shell) VersionFlag() string                   { return "" }
func (shell) Counted() bool                         { return true }
func (shell) Bulk() bool                            { return false }
func (shell) SkipReason(Share, probe.Limits) string { return "" }

func (k shell) Prepare(share Share) ([]string, error) {
	return []string{"/bin/sh", "-c", k.script, share.Dir}, nil
}

func (shell) Parse(_ Share, stdout []byte) (*Outcome, error) {
	var requests, ms, drained int64
	if n, err := fmt.Sscan(string(stdout), &requests, &ms, &drained); n < 2 {
		return nil, fmt.Errorf("%w: %w", ErrOutput, err)
	}
	l := newLatency()
	return &Outcome{Requests: uint64(requests), Taken: time.Duration(ms) * time.Millisecond,
			Drained: time.Duration(drained) * time.Millisecond, Latency: l},
		l.record(float64(ms)*1e3, requests)
}

// child is a process of this machine.
type child struct {
	command *exec.Cmd
	done    chan struct{}
	err     error
}

func start(_ context.Context, command []string, stdout, stderr io.Writer) (Process, error) {
	c := &child{command: exec.Command(command[0], command[1:]...), done: make(chan struct{})}
	c.command.Stdout, c.command.Stderr = stdout, stderr
	// A grandchild that keeps the output open must not block the test. A process that is stopped when its child ends
	// may read the output only seconds later.
	c.command.WaitDelay = 10 * time.Second
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		c.err = c.command.Wait()
		close(c.done)
	}()
	return c, nil
}

func (c *child) Done() <-chan struct{} { return c.done }
func (c *child) Wait() error           { <-c.done; return c.err }
func (c *child) Stop(context.Context) error {
	err := c.command.Process.Kill()
	<-c.done
	return err
}

func drive(t *testing.T, scripts ...string) Drive {
	d := Drive{Kind: shell{}, Bound: 10 * time.Second,
		Before: func() error { return nil }, After: func() error { return nil }}
	for i, script := range scripts {
		share := Share{Dir: t.TempDir(), Concurrency: 1}
		if err := os.WriteFile(filepath.Join(share.Dir, "script"), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		d.Clients = append(d.Clients, Client{Name: fmt.Sprintf("client%02d", i+1), Share: share, Start: start})
	}
	d.Kind = shell{script: `. "$0/script"`}
	return d
}

func TestDriveAddsUpItsClients(t *testing.T) {
	d := drive(t, "echo 30 100", "echo 10 300")
	ready := false
	d.Before = func() error {
		ready = true
		return nil
	}
	result, err := d.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !ready || result.Requests != 40 || len(result.Problems) != 0 {
		t.Errorf("ready %v, got %+v", ready, result)
	}
	if result.Duration < 300*time.Millisecond {
		t.Errorf("took %v, though a client says it took 300ms", result.Duration)
	}
	near(t, "mean", result.Latency.MeanMs(), 150)
}

// ended is a process that has ended well.
type ended struct{}

func (ended) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
func (ended) Wait() error                { return nil }
func (ended) Stop(context.Context) error { return nil }

// TestDriveLeavesOutTheDrain: a client's wait for a late answer, which it does not count, is no part of the measured
// time.
func TestDriveLeavesOutTheDrain(t *testing.T) {
	began := time.Unix(1000, 0)
	d := Drive{Kind: shell{}}
	for name, c := range map[string]struct {
		output string
		ended  time.Duration
		want   time.Duration
	}{
		"as long as the others": {"10 2000", 2 * time.Second, 2 * time.Second},
		"a late start":          {"10 2000", 2100 * time.Millisecond, 2100 * time.Millisecond},
		"a late answer":         {"10 2000 1000", 3 * time.Second, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			first := &runner{client: Client{Name: "client01"}, process: ended{}, ended: began.Add(2 * time.Second)}
			second := &runner{client: Client{Name: "client02"}, process: ended{}, ended: began.Add(c.ended)}
			fmt.Fprintln(&first.stdout, "10 2000")
			fmt.Fprintln(&second.stdout, c.output)
			result := d.collect([]*runner{first, second})
			if len(result.Problems) > 0 || result.Duration != c.want {
				t.Errorf("took %v, want %v; problems %q", result.Duration, c.want, result.Problems)
			}
		})
	}
}

func TestDriveReleasesNoneBeforeAllAreReady(t *testing.T) {
	d := drive(t, "echo x >$0/ran; echo 1 1", "echo x >$0/ran; echo 1 1")
	d.Before = func() error {
		for _, client := range d.Clients {
			if _, err := os.Stat(filepath.Join(client.Share.Dir, "ran")); err == nil {
				t.Errorf("%s ran before its release", client.Name)
			}
		}
		return nil
	}
	if _, err := d.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestDriveSurvivesABrokenGenerator(t *testing.T) {
	for name, tc := range map[string]struct{ script, says string }{
		"dies":    {"echo socket: too many open files >&2; exit 3", "too many open files"},
		"garbage": {"echo what", "what"},
		"silent":  {"exit 0", ErrOutput.Error()},
		"hangs":   {"echo waiting >&2; exec sleep 60", "killed"},
	} {
		t.Run(name, func(t *testing.T) {
			result := driveBeside(t, tc.script, name == "hangs")
			if len(result.Problems) != 1 || !strings.Contains(result.Problems[0], "client02") ||
				!strings.Contains(result.Problems[0], tc.says) {
				t.Errorf("problems %q, want one about client02 that says %q", result.Problems, tc.says)
			}
		})
	}
}

// driveBeside runs a script beside a generator that ends at once, and ends one that hangs after a second. If this
// process is stopped for that long, it may end the other one, too: then they run again.
func driveBeside(t *testing.T, script string, hangs bool) *Result {
	t.Helper()
	for tries := 1; ; tries++ {
		d := drive(t, "echo 30 100", script)
		if hangs {
			d.Bound = time.Second
		}
		result, err := d.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !hangs || tries == 5 || !strings.Contains(strings.Join(result.Problems, "\n"), "client01") {
			return result
		}
		t.Logf("problems %q: once more", result.Problems)
	}
}

func TestDriveSaysOnceWhatWentWrongOnAll(t *testing.T) {
	d := drive(t, "echo no >&2; exit 3", "echo no >&2; exit 3", "exit 4")
	result, err := d.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`client01 and 1 more: shell died: exit status 3; its last words: "no"`,
		"client03: shell died: exit status 4"}
	if diff := cmp.Diff(want, result.Problems); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDriveEndsWithItsContext(t *testing.T) {
	d := drive(t, "exec sleep 60")
	ctx, cancel := context.WithCancel(t.Context())
	d.Before = func() error {
		cancel()
		return nil
	}
	if _, err := d.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestDriveSaysWhatCouldNotStart(t *testing.T) {
	d := drive(t, "echo 1 1")
	d.Clients[0].Start = func(ctx context.Context, _ []string, stdout, stderr io.Writer) (Process, error) {
		return start(ctx, []string{"/bin/sh", "-c", "echo no shell >&2; exit 1"}, stdout, stderr)
	}
	if _, err := d.Run(t.Context()); !errors.Is(err, ErrGate) || !strings.Contains(err.Error(), "no shell") {
		t.Errorf("got %v, want ErrGate with the last words", err)
	}
}
