// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// otherBuild returns the path of this program with another build ID, until the test ends, with a speaker of that build
// in the same directory.
func otherBuild(t *testing.T) string {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.Open(own)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	note := file.Section(".note.go.buildid")
	if note == nil {
		t.Fatal("the program has no build ID")
	}
	code[note.Offset+16] ^= 1 // behind the note's head, as program.Build reads it
	path := filepath.Join(t.TempDir(), "jeoul")
	if err := os.WriteFile(path, code, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, path+"-bgp"); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSpeakerOfAnotherBuild: a daemon of another build replaces the running speaker, and the router keeps the route
// during that time.
func TestSpeakerOfAnotherBuild(t *testing.T) {
	testenv.Target(t, matrixTarget)
	t.Parallel()
	b := newBGPBalancer(t)
	other := otherBuild(t)
	b.start(t)
	b.expectRoute(t, "at first", true)
	before := b.speaker(t, "at first")
	leave(t, b.daemon)
	daemon, err := b.host.Start(context.WithoutCancel(t.Context()), lab.Command{Path: other, Args: b.arguments(),
		Env: append(os.Environ(), actAsJeoul+"=1"), Stdout: &b.log, Stderr: &b.log})
	if err != nil {
		t.Fatal(err)
	}
	b.daemon = daemon
	missing := 0
	b.eventually(t, "a speaker of the other build has a session", func(status *ops.Status) bool {
		if !strings.Contains(b.ask("show route"), b.vip.String()+"/32") {
			missing++
		}
		return status.BGP != nil && status.BGP.SpeakerPID != before && len(status.BGP.Peers) == 1 &&
			status.BGP.Peers[0].Established()
	})
	b.expectRoute(t, "with the other build", true)
	if missing > 0 {
		t.Errorf("the router had no route %d times meanwhile", missing)
	}
	if out := b.ask("show protocols all balancer"); strings.Contains(out, "Cease") {
		t.Errorf("the speaker has said a word: %s", out)
	}
	if !strings.Contains(b.log.String(), "it is restarted, and routers keep the routes meanwhile") {
		t.Error("the log does not say that the speaker is replaced")
	}
	stop(t, b.daemon)
	b.expectRoute(t, "stopped", false)
}
