// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/proxy/process"
)

func TestProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() })
	id, err := process.Of(cmd.Process.Pid)
	if err != nil || !id.IsRunning() {
		t.Fatalf("%+v runs: %v; %v", id, id.IsRunning(), err)
	}
	for _, other := range []process.ID{{}, {PID: id.PID, Start: id.Start + 1, Boot: id.Boot},
		{PID: id.PID, Start: id.Start, Boot: "another"}} {
		if other.IsRunning() {
			t.Errorf("%+v runs", other)
		}
		if err := other.Signal(syscall.SIGKILL); err != nil && other.PID != 0 {
			t.Error(err)
		}
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := id.Wait(done); !errors.Is(err, context.Canceled) || !id.IsRunning() {
		t.Errorf("waiting with a context that is over: %v; it runs: %v", err, id.IsRunning())
	}
	if err := id.Signal(os.Kill); err != nil {
		t.Error(err)
	}
	// Not reaped yet, it is a zombie: it has ended.
	if err := id.Wait(t.Context()); err != nil || id.IsRunning() {
		t.Errorf("after it was killed: %v; it runs: %v", err, id.IsRunning())
	}
}
