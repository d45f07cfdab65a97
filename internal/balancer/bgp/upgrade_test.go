// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// otherBuildSpeaker is a process that is a speaker of another build on a socket. Its answers to the end are sent to
// ended.
func otherBuildSpeaker(t *testing.T, socket, protocolAndBuild, says string, ends bool, ended chan<- string) (pid int) {
	t.Helper()
	// A program that does nothing stands for the process.
	cmd := exec.Command(testenv.Program(t, "sleep"), "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	start, err := ProcessStart(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statePath, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{%s, "pid": %d, "start": %d, "number": 1, "told": true, %s}`, protocolAndBuild, cmd.Process.Pid,
			start, says)
	})
	mux.HandleFunc("PUT "+desiredPath, func(w http.ResponseWriter, _ *http.Request) {
		t.Error("a speaker of another build gets the desired state")
		http.Error(w, "what?", http.StatusBadRequest)
	})
	mux.HandleFunc("POST "+endPath, func(_ http.ResponseWriter, r *http.Request) {
		how, _ := io.ReadAll(r.Body)
		ended <- strings.TrimSpace(string(how))
		if ends {
			_ = cmd.Process.Kill()
		}
	})
	server := &http.Server{Handler: mux}
	served, waited := make(chan struct{}), make(chan struct{})
	go func() { _ = server.Serve(listener); close(served) }()
	go func() { _ = cmd.Wait(); _ = server.Close(); close(waited) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-waited
		<-served
	})
	return cmd.Process.Pid
}

// TestUpgrade: a speaker of another build or protocol is ended without a word to routers, whatever else it says and
// whether it obeys or not, and the next one knows that there was one.
func TestUpgrade(t *testing.T) {
	says := func(protocol int, build string) string {
		return fmt.Sprintf(`"protocol": %d, "build": %q`, protocol, build)
	}
	for _, test := range []struct {
		name, protocolAndBuild, says string
		ends                         bool
	}{
		{"another build", says(Protocol, "before"), `"vips": ["198.51.100.80"], "peers": []`, true},
		{"another protocol", says(Protocol+1, "after"), `"vips": {"198.51.100.80": {"metric": 1}}, "peers": "none"`,
			true},
		{"another protocol of the same build", says(Protocol+1, "this build"), `"vips": 7`, true},
		{"one that does not end", says(Protocol, "before"), `"vips": [], "peers": []`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			socket, log, next := filepath.Join(t.TempDir(), "speaker"), &lines{}, newFakeSpeaker()
			ended := make(chan string, 1)
			pid := otherBuildSpeaker(t, socket, test.protocolAndBuild, test.says, test.ends, ended)
			starts := 0
			k := NewKeeper(KeeperOptions{Socket: socket, Log: slog.New(slog.NewTextHandler(log, nil)),
				Program: fakeProgram{build: "this build", start: func(restarting bool) error {
					if starts++; !restarting {
						t.Error("the next speaker is not started as if there had been one before")
					}
					serve(t, socket, next)
					return nil
				}}})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			k.SetDesired(desiredState("198.51.100.80"))
			go func() { k.Run(ctx); close(done) }()
			bound, stop := context.WithTimeout(t.Context(), testenv.WaitLimit)
			defer stop()
			k.AwaitDelivery(bound)
			cancel()
			<-done
			if how := <-ended; how != `{"how":"restart"}` {
				t.Errorf("it was ended by %s", how)
			}
			if state := next.State(); len(state.VIPs) != 1 || starts != 1 {
				t.Errorf("after %d starts, the next one announces %v", starts, state.VIPs)
			}
			if says := fmt.Sprintf("the BGP speaker (process %d) cannot be restarted, and is killed",
				pid); log.has(says) == test.ends {
				t.Errorf("the log says %q: %v\n%s", says, !test.ends, log.text.String())
			}
		})
	}
}

// TestProgramIsMissing: without an installed program, a speaker of another build goes on, and one that cannot be
// understood is not ended either: none could follow it.
func TestProgramIsMissing(t *testing.T) {
	missing := errors.New("the program jeoul-bgp is not installed")
	options := func(socket string) KeeperOptions {
		return KeeperOptions{Socket: socket, Program: fakeProgram{missing: missing}, Log: slog.New(slog.DiscardHandler)}
	}
	runs := func(t *testing.T, k *Keeper) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		k.SetDesired(desiredState("198.51.100.80"))
		go func() { k.Run(ctx); close(done) }()
		t.Cleanup(func() { cancel(); <-done })
	}
	t.Run("another build", func(t *testing.T) {
		t.Parallel()
		socket, before := filepath.Join(t.TempDir(), "speaker"), newFakeSpeaker()
		serve(t, socket, before)
		k := NewKeeper(options(socket))
		runs(t, k)
		bound, stop := context.WithTimeout(t.Context(), testenv.WaitLimit)
		defer stop()
		k.AwaitDelivery(bound)
		if state := before.State(); len(state.VIPs) != 1 {
			t.Errorf("the speaker that runs announces %v", state.VIPs)
		}
		if _, problem := k.State(); problem != nil {
			t.Errorf("the problem is %v", problem)
		}
	})
	for name, start := range map[string]func(t *testing.T, socket string){
		"another protocol": func(t *testing.T, socket string) {
			otherBuildSpeaker(t, socket, fmt.Sprintf(`"protocol": %d, "build": "before"`, Protocol+1),
				`"vips": [], "peers": []`, true, make(chan string, 1))
		},
		"no speaker": func(*testing.T, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(t.TempDir(), "speaker")
			start(t, socket)
			k := NewKeeper(options(socket))
			runs(t, k)
			testenv.Eventually(t, testenv.WaitLimit, "the missing program is the problem", func() bool {
				_, problem := k.State()
				return errors.Is(problem, missing)
			})
		})
	}
}

// TestInstalledProtocol: an installed program of another protocol is started and ended, and the problem says what to
// install.
func TestInstalledProtocol(t *testing.T) {
	socket, ended := filepath.Join(t.TempDir(), "speaker"), make(chan string, 1)
	k := NewKeeper(KeeperOptions{Socket: socket, Log: slog.New(slog.DiscardHandler),
		Program: fakeProgram{build: "the next build", start: func(bool) error {
			otherBuildSpeaker(t, socket, fmt.Sprintf(`"protocol": %d, "build": "the next build"`, Protocol+1), `"vips": []`,
				true, ended)
			return nil
		}}})
	if err := k.start(t.Context(), State{}); err == nil ||
		!strings.Contains(err.Error(), "install both of one build, and restart the balancer") {
		t.Errorf("the error is %v", err)
	}
	if how := <-ended; how != `{"how":"restart"}` {
		t.Errorf("it was ended by %s", how)
	}
}

// FuzzReadState: whatever a speaker of another protocol says, it is known who it is, or that it says nothing that is
// understood.
func FuzzReadState(f *testing.F) {
	f.Add([]byte(
		`{"protocol": 1, "build": "b", "pid": 7, "start": 9, "vips": ["192.0.2.1"], "peers": [{"name": "x"}]}`))
	f.Add([]byte(`{"protocol": 3, "build": "b", "pid": 7, "start": 9, "vips": 3}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		state, err := readState(text)
		if err == nil && state.Protocol != Protocol && (state.VIPs != nil || state.Peers != nil || state.Configured) {
			t.Errorf("of another protocol, %+v is read of %q", state, text)
		}
	})
}
