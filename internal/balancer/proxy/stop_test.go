// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/proxy/process"
	"github.com/jeoul/jeoul/internal/test/testcert"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestStopDuringStart: a stop ends a HAProxy that is being started again, and that does not serve yet.
func TestStopDuringStart(t *testing.T) {
	e, _ := newFakeEngine(t, verifiedService(testcert.NewAuthority(t).File))
	began, program := filepath.Join(t.TempDir(), "began"), filepath.Join(t.TempDir(), "haproxy")
	script := "#!/bin/sh\necho $$ >" + began + "\nexec /bin/sleep 600\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	dead := process.ID{PID: firstWorker}
	back, err := e.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e.running.Program, e.running.Master = program, dead
	back()
	done := make(chan struct{})
	go func() { defer close(done); e.startAgain(dead) }()
	var id process.ID
	testenv.Eventually(t, testenv.WaitLimit, "HAProxy is being started", func() bool {
		text, _ := os.ReadFile(began)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err == nil {
			id, err = process.Of(pid)
		}
		return err == nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), ServeTimeout/2) // the start takes ServeTimeout by itself
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		t.Errorf("the stop: %v", err)
		e.unwatch()
	}
	<-done
	if id.IsRunning() {
		t.Error("HAProxy was left running")
		e.kill(id)
	}
}
