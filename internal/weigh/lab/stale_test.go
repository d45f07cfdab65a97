// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab/claim"
)

// ownerVariable makes the test binary the owner of a lab; the test then kills it.
const ownerVariable = "JEOUL_TEST_LAB_OWNER"

// owned describes the lab of an owner.
type owned struct {
	ID, Dir string
	PIDs    []int
}

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		ownLab()
		return
	}
	if name := os.Getenv(namesVariable); name != "" {
		if err := namesApart(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if dir := os.Getenv(chrootVariable); dir != "" {
		if err := labInChroot(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// ownLab builds a lab, starts processes in it, prints its description, and waits to be killed.
func ownLab() {
	// With its own deadline, so that a failed test leaves no process.
	ctx, cancel := context.WithTimeout(context.Background(), testenv.WaitLimit)
	defer cancel()
	l, err := New(ctx, Spec{Clients: 1, Servers: 1, Containers: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer l.Close()
	record := owned{ID: l.ID, Dir: l.Dir}
	// A master with a worker in its group, as nginx has, and a daemon that moved to its own session.
	p, err := l.Balancer.Start(ctx, Command{Path: "sh", Args: []string{"-c",
		`sleep 1000 & setsid sleep 1000 & wait`}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	record.PIDs = append(record.PIDs, p.PID())
	claim.Poll(ctx, func() (bool, error) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.PID()))
		for _, field := range strings.Fields(string(b)) {
			var pid int
			fmt.Sscan(field, &pid)
			if !slices.Contains(record.PIDs, pid) {
				record.PIDs = append(record.PIDs, pid)
			}
		}
		return len(record.PIDs) == 3, err
	})
	json.NewEncoder(os.Stdout).Encode(record)
	<-ctx.Done()
}

func startOwner(t *testing.T) (*exec.Cmd, owned) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	var record owned
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &record)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(record.PIDs) != 3 {
		t.Fatalf("the owner started processes %v, want three", record.PIDs)
	}
	return cmd, record
}

func TestCleanStale(t *testing.T) {
	testenv.Root(t)
	live := newLab(t)
	owner, record := startOwner(t)

	// While the owner lives, its lab must not be removed.
	removed, err := CleanStale(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(removed, record.ID) {
		t.Fatal("CleanStale removed a live lab")
	}
	for _, pid := range record.PIDs {
		if !running(pid) {
			t.Errorf("CleanStale killed process %d of a live lab", pid)
		}
	}

	owner.Process.Kill()
	owner.Wait()
	if left := remains(t, record.ID, record.Dir); len(left) == 0 {
		t.Fatal("nothing is left of a killed owner's lab: this test cannot fail")
	}
	// Another test's New may be faster, so the test only checks that the lab is gone.
	if _, err := CleanStale(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the dead lab is gone", func() bool { return len(remains(t, record.ID, record.Dir)) == 0 })
	for _, pid := range record.PIDs {
		if running(pid) {
			t.Errorf("process %d of the dead lab runs on", pid)
		}
	}
	if err := live.Balancer.Do(func() error { return nil }); err != nil {
		t.Errorf("the live lab suffered: %v", err)
	}
	if left := remains(t, live.ID, live.Dir); len(left) == 0 {
		t.Error("the live lab is gone")
	}
}
