// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/tune/nic"
	"github.com/jeoul/jeoul/internal/tools/tune/untracked"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The environment variables of the process to be killed: the step, and the operation.
const (
	envStep  = "JEOUL_TUNE_TEST_STEP"
	envRoot  = "JEOUL_TUNE_TEST_ROOT"
	envState = "JEOUL_TUNE_TEST_STATE"
	envCard  = "JEOUL_TUNE_TEST_CARD"
	envTask  = "JEOUL_TUNE_TEST_TASK"
)

// TestMain applies or reverts instead of testing if the environment requests it, and kills itself (SIGKILL) at a step.
func TestMain(m *testing.M) {
	at, err := strconv.Atoi(os.Getenv(envStep))
	if err != nil {
		os.Exit(m.Run())
	}
	step := func() {
		if at--; at < 0 {
			unix.Kill(os.Getpid(), unix.SIGKILL)
		}
	}
	if err := work(step); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func work(step func()) error {
	root, state := os.Getenv(envRoot), os.Getenv(envState)
	if os.Getenv(envTask) == "revert" {
		_, err := revert(RevertOptions{Root: root, State: state}, step)
		return err
	}
	opt := Options{Role: RoleWeb, Interfaces: []string{os.Getenv(envCard)}, Root: root, Services: testServices}
	if root != "" {
		p, err := Load("")
		if err != nil {
			return err
		}
		if opt.Profile,
			err = p.Only([]string{"swappiness", "ring-rx", "open-files", "irqbalance",
			"conntrack-bypass"}); err != nil {
			return err
		}
	}
	t, err := New(opt)
	if err != nil {
		return err
	}
	defer t.Close()
	t.step = step
	_, err = t.Apply(ApplyOptions{State: state, Persist: root != ""})
	return err
}

// child runs a task to be killed at a step, and reports whether it was.
func child(ctx context.Context, step int, env ...string) (killed bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), append(env, fmt.Sprintf("%s=%d", envStep, step))...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: %s", err, &stderr)
	}
	return false, nil
}

// eachStep kills apply at every step, and the revert of a complete apply once. After each of them, the last revert must
// restore everything.
func eachStep(t *testing.T, env []string, snapshot func() (map[string]string, error), last func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	before, err := snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for step := 0; ; step++ {
		killed, err := child(ctx, step, env...)
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if !killed {
			// The complete revert is killed too, once in the middle.
			if killed, err := child(ctx, step/6, append(env, envTask+"=revert")...); err != nil || !killed {
				t.Fatalf("killing revert: %v, %v", killed, err)
			}
		}
		if err := last(); err != nil && !errors.Is(err, ErrNothing) {
			t.Fatalf("revert after step %d: %v", step, err)
		}
		after, err := snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("after a kill at step %d (-before +after):\n%s", step, diff)
		}
		if !killed {
			if step < 6 {
				t.Fatalf("only %d steps: hardly anything was changed", step)
			}
			t.Logf("%d steps", step)
			return
		}
	}
}

func TestKilledAtEachStep(t *testing.T) {
	root := fake(t, small)
	eachStep(t, []string{envRoot + "=" + root, envCard + "=eth0"},
		func() (map[string]string, error) {
			files := snapshot(t, root)
			for path := range files {
				// Left over from a file that was not in place yet when the process was killed.
				if strings.HasSuffix(path, ".new") {
					delete(files, path)
				}
			}
			return files, nil
		},
		func() error { _, err := Revert(RevertOptions{Root: root}); return err })
}

// TestKilledInANamespace kills tune on a host of a laboratory, whose settings are the kernel's own.
func TestKilledInANamespace(t *testing.T) {
	testenv.Root(t)
	l, err := lab.New(t.Context(), lab.Spec{Clients: 1, Servers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	host, state := l.Servers[0], t.TempDir()
	do := func(f func() error) {
		t.Helper()
		if err := host.Do(f); err != nil {
			t.Fatal(err)
		}
	}
	// The laboratory's own settings leave little to change.
	do(func() error {
		return errors.Join(
			sysctl.Write("net.core.somaxconn", "128"), sysctl.Write("net.ipv4.tcp_fin_timeout", "60"),
			sysctl.Write("net.ipv4.conf."+host.Interface+".arp_notify", "1"),
			os.WriteFile("/sys/class/net/"+host.Interface+"/tx_queue_len", []byte("100"), 0))
	})
	machine := map[string]string{}
	if err := readAll("/proc/sys/net/core", machine); err != nil {
		t.Fatal(err)
	}
	do(func() error {
		eachStep(t, []string{envState + "=" + state, envCard + "=" + host.Interface},
			func() (map[string]string, error) { return settings(host.Interface) },
			func() error { _, err := Revert(RevertOptions{State: state}); return err })
		return nil
	})
	after := map[string]string{}
	if err := readAll("/proc/sys/net/core", after); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(machine, after); diff != "" {
		t.Errorf("the machine's settings were touched:\n%s", diff)
	}
	if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
		t.Errorf("left in the journal's directory: %v, %v", left, err)
	}
}

// settings returns the readable settings of the calling thread's namespace.
func settings(card string) (all map[string]string, err error) {
	all = map[string]string{}
	for _, dir := range []string{"/proc/sys/net", "/sys/class/net/" + card + "/queues"} {
		if err := readAll(dir, all); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"tx_queue_len", "threaded", "gro_flush_timeout"} {
		all[name] = readLine("/sys/class/net/" + card + "/" + name)
	}
	for _, service := range testServices {
		bypassed, err := untracked.Bypassed(service)
		if err != nil {
			return nil, err
		}
		all[untracked.Name(service)] = strconv.FormatBool(bypassed)
	}
	cards, err := nic.Open()
	if err != nil {
		return nil, err
	}
	defer cards.Close()
	for _, name := range []string{"rx-gro", "rx-lro", "rx-gro-hw", "tx-tcp-segmentation", "rx-vlan-hw-parse"} {
		if value, err := cards.Get(card, nic.Feature+name); err == nil {
			all[name] = value
		}
	}
	return all, nil
}

// readAll reads the files below a directory, except those that change by themselves or can only be written.
func readAll(dir string, into map[string]string) error {
	skip := map[string]bool{"nf_conntrack_count": true, "byte_queue_limits": true}
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if entry != nil && skip[entry.Name()] {
				return fs.SkipDir
			}
			return err
		}
		if data, err := os.ReadFile(path); err == nil && !skip[entry.Name()] {
			found[path] = sysctl.OneLine(string(data))
		}
		return nil
	})
	maps.Copy(into, found)
	return err
}

// TestNamespaceLeavesTheMachineAlone examines a host of a laboratory: the machine's settings, and only those, are
// reported as the machine's.
func TestNamespaceLeavesTheMachineAlone(t *testing.T) {
	testenv.Root(t)
	l, err := lab.New(t.Context(), lab.Spec{Clients: 1, Servers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	host := l.Servers[0]
	var r *Report
	err = host.Do(func() error {
		tuner, err := New(Options{Role: RoleWeb, Interfaces: []string{host.Interface}})
		if err != nil {
			return err
		}
		defer tuner.Close()
		r = tuner.Check()
		if _, err := tuner.Apply(ApplyOptions{State: host.Dir, Persist: true}); err == nil {
			return errors.New("a namespace was made to last")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"tcp-mem", "orphans", "netdev-backlog", "swappiness", "open-files"} {
		for _, f := range r.Findings {
			if f.Item == id && f.State != Machines && f.State != Good {
				t.Errorf("%s is %s", id, f.State)
			}
		}
	}
	for _, f := range r.With(Differs) {
		for _, s := range f.Settings {
			if s.Key.OfMachine("") {
				t.Errorf("%s would be changed", s.Key)
			}
		}
	}
	if r.Host.Namespace == false || r.Interfaces[0].Driver != "veth" || !r.Interfaces[0].Virtual ||
		r.Interfaces[0].foreign {
		t.Errorf("%+v", r.Interfaces[0])
	}
}
