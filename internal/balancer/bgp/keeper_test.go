// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// fakeProgram is a program whose speakers run in the test.
type fakeProgram struct {
	build string
	// missing is why the program cannot be started; nil: it can.
	missing error
	start   func(restarting bool) error
}

func (p fakeProgram) Build() (string, error) { return p.build, p.missing }

func (p fakeProgram) Start(_ string, restarting bool) error {
	if p.missing != nil {
		return p.missing
	}
	return p.start(restarting)
}

// fakeSpeaker is a speaker without routers.
type fakeSpeaker struct {
	mu      sync.Mutex
	desired Desired
	refuse  error
	state   State
	changed chan struct{}
	// withdrawals counts calls of WithdrawAll, of which the first stuck fail.
	withdrawals, stuck int
}

func newFakeSpeaker() *fakeSpeaker {
	return &fakeSpeaker{state: State{Number: 1}, changed: make(chan struct{})}
}

func (f *fakeSpeaker) Apply(w Desired) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	f.desired, f.state.VIPs = w, w.VIPs
	f.setState()
	return nil
}

func (f *fakeSpeaker) setState() {
	f.state.Number++
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeSpeaker) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.state
	state.Peers = slices.Clone(state.Peers)
	return state
}

func (f *fakeSpeaker) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

func (f *fakeSpeaker) Shutdown(ShutdownMode) {}

func (f *fakeSpeaker) WithdrawAll() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.withdrawals++; f.withdrawals <= f.stuck {
		return errors.New("no buffer space available")
	}
	f.state.VIPs = nil
	f.setState()
	return nil
}

func (f *fakeSpeaker) peer(p ops.BGPPeer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Peers = []ops.BGPPeer{p}
	f.setState()
}

type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(says string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), says)
}

func (l *lines) count(says string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), says)
}

// serve serves until the test ends, or end is called.
func serve(t *testing.T, socket string, speaker Speaker) (end func()) {
	t.Helper()
	listener, err := Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := Serve(ctx, listener, speaker, "this build"); err != nil {
			t.Error(err)
		}
	}()
	end = func() {
		cancel()
		<-done
	}
	t.Cleanup(end)
	return end
}

func desiredState(vips ...string) Desired {
	w := Desired{BGP: lb.BGP{ASN: 64512, RouterID: netip.MustParseAddr("192.0.2.10")}}
	for _, vip := range vips {
		w.VIPs = append(w.VIPs, netip.MustParseAddr(vip))
	}
	return w
}

// TestKeeper: a keeper starts a speaker when something is wanted, sends it the desired state, and reads the state of
// its peers.
func TestKeeper(t *testing.T) {
	socket, speaker, log := filepath.Join(t.TempDir(), "speaker"), newFakeSpeaker(), &lines{}
	starts := 0
	k := NewKeeper(KeeperOptions{Socket: socket, Log: slog.New(slog.NewTextHandler(log, nil)),
		Program: fakeProgram{build: "this build", start: func(restarting bool) error {
			if starts++; restarting {
				t.Error("the first speaker is started as if there had been one before")
			}
			serve(t, socket, speaker)
			return nil
		}}})
	if found := k.AnnouncedVIPs(t.Context()); found != nil {
		t.Errorf("without a speaker, it has found %v", found)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { k.Run(ctx); close(ended) }()
	bound, stop := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer stop()
	k.SetDesired(desiredState("198.51.100.80"))
	k.AwaitDelivery(bound)
	if found := k.AnnouncedVIPs(t.Context()); len(found) != 1 || found[0] != netip.MustParseAddr("198.51.100.80") ||
		starts != 1 {
		t.Errorf("after %d starts, the speaker announces %v", starts, found)
	}
	k.SetDesired(desiredState())
	k.AwaitDelivery(bound)
	if found := k.AnnouncedVIPs(t.Context()); len(found) != 0 {
		t.Errorf("after it was withdrawn, the speaker announces %v", found)
	}
	for _, step := range []struct {
		peer ops.BGPPeer
		says string
	}{
		{ops.BGPPeer{Address: "192.0.2.1", ASN: 64513, State: "active", Reason: "it does not answer"},
			"192.0.2.1 (AS 64513) has no session: it does not answer"},
		{ops.BGPPeer{Address: "192.0.2.1", ASN: 64513, State: ops.BGPEstablished, Sessions: 1},
			"192.0.2.1 (AS 64513) established"},
		{ops.BGPPeer{Address: "192.0.2.1", ASN: 64513, State: ops.BGPEstablished, Sessions: 1, Received: 5},
			"announces routes (5 so far), which are ignored"},
		{ops.BGPPeer{Address: "192.0.2.1", ASN: 64513, State: "idle", Sessions: 1, Reason: "the connection broke"},
			"192.0.2.1 (AS 64513) down: the connection broke"},
	} {
		speaker.peer(step.peer)
		testenv.Eventually(t, testenv.WaitLimit, "the log says "+step.says, func() bool { return log.has(step.says) })
	}
	speaker.mu.Lock()
	speaker.refuse = errors.New("no such AS")
	speaker.mu.Unlock()
	k.SetDesired(desiredState("198.51.100.81"))
	testenv.Eventually(t, testenv.WaitLimit, "what the speaker refuses is a problem", func() bool {
		_, problem := k.State()
		return problem != nil && strings.Contains(problem.Error(), "no such AS")
	})
	speaker.peer(ops.BGPPeer{Address: "192.0.2.1", ASN: 64513, State: ops.BGPEstablished, Sessions: 2})
	established := "192.0.2.1 (AS 64513) established"
	testenv.Eventually(t, testenv.WaitLimit, "a session is known while the speaker refuses", func() bool {
		state, _ := k.State()
		return log.count(established) == 2 && len(state.Peers) == 1 && state.Peers[0].Established()
	})
	speaker.mu.Lock()
	speaker.refuse = nil
	speaker.mu.Unlock()
	k.AwaitDelivery(bound)
	testenv.Eventually(t, testenv.WaitLimit, "the problem is over", func() bool {
		state, problem := k.State()
		return problem == nil && state.PID == os.Getpid()
	})
	cancel()
	<-ended
}

// endingSpeaker is a speaker that says how it is to end.
type endingSpeaker struct {
	*fakeSpeaker
	ended chan ShutdownMode
}

func (e *endingSpeaker) Shutdown(how ShutdownMode) { e.ended <- how }

// TestLeftSpeakerIsEnded: a speaker that this keeper has not started is ended where no BGP is desired.
func TestLeftSpeakerIsEnded(t *testing.T) {
	socket, speaker := filepath.Join(t.TempDir(), "speaker"), &endingSpeaker{newFakeSpeaker(), make(chan ShutdownMode, 1)}
	serve(t, socket, speaker)
	k := NewKeeper(KeeperOptions{Socket: socket, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { k.Run(ctx); close(ran) }()
	k.SetDesired(Desired{})
	if how := <-speaker.ended; how != Stop {
		t.Errorf("it is ended for %v, want %v", how, Stop)
	}
	cancel()
	<-ran
}

// TestSpeakerIsLost: of a speaker that has died, and that no other can be started for, no session is said to be there.
func TestSpeakerIsLost(t *testing.T) {
	socket, speaker, log := filepath.Join(t.TempDir(), "speaker"), newFakeSpeaker(), &lines{}
	speaker.peer(ops.BGPPeer{Address: "192.0.2.1", ASN: 64513, State: ops.BGPEstablished, Sessions: 1, Restarts: true})
	end := serve(t, socket, speaker)
	k := NewKeeper(KeeperOptions{Socket: socket, Log: slog.New(slog.NewTextHandler(log, nil)),
		Program: fakeProgram{build: "this build", start: func(bool) error { return errors.New("no memory") }}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { k.Run(ctx); close(ended) }()
	k.SetDesired(desiredState("198.51.100.80"))
	established := func() int {
		state, _ := k.State()
		return len(slices.DeleteFunc(slices.Clone(state.Peers), func(p ops.BGPPeer) bool { return !p.Established() }))
	}
	testenv.Eventually(t, testenv.WaitLimit, "the session is known", func() bool { return established() == 1 })
	end()
	testenv.Eventually(t, testenv.WaitLimit, "no session is left, and the log says why", func() bool {
		return established() == 0 && log.has("192.0.2.1 (AS 64513) down: the BGP speaker does not run")
	})
	k.SetDesired(desiredState("198.51.100.81")) // tries again at once
	testenv.Eventually(t, testenv.WaitLimit, "the speaker cannot be started", func() bool {
		_, problem := k.State()
		return problem != nil && strings.Contains(problem.Error(), "no memory")
	})
	if said := log.count("has died"); said != 1 {
		t.Errorf("the log says %d times that the speaker has died", said)
	}
	if state, _ := k.State(); len(state.Peers) != 1 || state.Peers[0].Since.IsZero() {
		t.Errorf("the state is %+v", state)
	}
	cancel()
	<-ended
}

// TestRefusedByNextSpeaker: a speaker in the place of one that has died gets the desired state, also where it refuses
// it at first.
func TestRefusedByNextSpeaker(t *testing.T) {
	socket, first, next := filepath.Join(t.TempDir(), "speaker"), newFakeSpeaker(), newFakeSpeaker()
	next.refuse = errors.New("no such AS")
	end := serve(t, socket, first)
	k := NewKeeper(KeeperOptions{Socket: socket, Log: slog.New(slog.DiscardHandler),
		Program: fakeProgram{build: "this build", start: func(bool) error {
			serve(t, socket, next)
			return nil
		}}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { k.Run(ctx); close(ended) }()
	bound, stop := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer stop()
	k.SetDesired(desiredState("198.51.100.80"))
	k.AwaitDelivery(bound)
	end()
	testenv.Eventually(t, testenv.WaitLimit, "the next speaker refuses", func() bool {
		_, problem := k.State()
		return problem != nil && strings.Contains(problem.Error(), "no such AS")
	})
	next.mu.Lock()
	next.refuse = nil
	next.mu.Unlock()
	testenv.Eventually(t, testenv.WaitLimit, "the next speaker announces", func() bool {
		return len(next.State().VIPs) == 1
	})
	cancel()
	<-ended
}

// TestSpeakerWithoutFile: a speaker whose socket has no file, because there is no room or no directory, is found all
// the same, and a second one is refused.
func TestSpeakerWithoutFile(t *testing.T) {
	socket, speaker := filepath.Join(t.TempDir(), "missing", "speaker"), newFakeSpeaker()
	serve(t, socket, speaker)
	client := NewClient(socket)
	if err := client.Apply(t.Context(), desiredState("198.51.100.80")); err != nil {
		t.Fatal(err)
	}
	if state, err := client.State(t.Context(), 0); err != nil || len(state.VIPs) != 1 || state.PID != os.Getpid() {
		t.Errorf("it says %+v: %v", state, err)
	}
	if _, err := Listen(t.Context(), socket); err == nil {
		t.Error("another one listens, too")
	}
}

func TestOrphan(t *testing.T) {
	socket, speaker := filepath.Join(t.TempDir(), "speaker"), newFakeSpeaker()
	serve(t, socket, speaker)
	client := NewClient(socket)
	w := desiredState("198.51.100.80")
	w.OrphanTimeout = time.Millisecond
	if err := client.Apply(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, testenv.WaitLimit, "routes without a balancer are withdrawn", func() bool {
		return len(speaker.State().VIPs) == 0
	})
	state, err := client.State(t.Context(), 0)
	if err != nil || !state.Orphaned || !state.Configured || state.Protocol != Protocol || state.Build != "this build" {
		t.Errorf("the state is %+v, %v", state, err)
	}
	w.OrphanTimeout = 0
	if err := client.Apply(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if state, err := client.State(t.Context(), 0); err != nil || state.Orphaned || len(state.VIPs) != 1 {
		t.Errorf("with a balancer again, the state is %+v, %v", state, err)
	}
}

// returningSpeaker is a speaker whose balancer makes a request while routes are being withdrawn.
type returningSpeaker struct {
	*fakeSpeaker
	request func()
}

func (r *returningSpeaker) WithdrawAll() error {
	var ended atomic.Bool
	go func() {
		r.request()
		ended.Store(true)
	}()
	for range 1000 { // the request has every chance to be first
		if ended.Load() {
			break
		}
		runtime.Gosched()
	}
	return r.fakeSpeaker.WithdrawAll()
}

// orphan serves a speaker in a bubble, without a socket: desired requests a VIP, once more while the withdrawal of
// routes begins.
func orphan(t *testing.T, speaker Speaker) (s *server, desired func(timeout time.Duration), end func()) {
	s = &server{speaker: speaker, lastRequest: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	go s.watchOrphan(ctx)
	return s, func(timeout time.Duration) {
		w := desiredState("198.51.100.80")
		w.OrphanTimeout = timeout
		text, err := json.Marshal(w)
		if err != nil {
			t.Error(err)
		}
		answer := httptest.NewRecorder()
		s.handleDesired(answer, httptest.NewRequest(http.MethodPut, desiredPath, bytes.NewReader(text)))
		if answer.Code != http.StatusOK {
			t.Errorf("the answer is %s", answer.Body)
		}
	}, cancel
}

// TestReturnOfOrphan: a balancer that returns while its routes are being withdrawn has them announced.
func TestReturnOfOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		speaker := &returningSpeaker{fakeSpeaker: newFakeSpeaker()}
		s, desired, end := orphan(t, speaker)
		defer end()
		speaker.request = func() { desired(0) }
		desired(time.Millisecond)
		time.Sleep(2 * orphanCheckInterval)
		synctest.Wait()
		if state := speaker.State(); s.orphaned || len(state.VIPs) != 1 {
			t.Errorf("it is an orphan: %v, and announces %v", s.orphaned, state.VIPs)
		}
	})
}

// TestOrphanTriesAgain: a withdrawal that fails is tried again until it succeeds, and not after that.
func TestOrphanTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		speaker := newFakeSpeaker()
		speaker.stuck = 2
		s, desired, end := orphan(t, speaker)
		defer end()
		desired(time.Millisecond)
		time.Sleep(10 * orphanCheckInterval)
		synctest.Wait()
		if state := speaker.State(); !s.orphaned || len(state.VIPs) > 0 || speaker.withdrawals != 3 {
			t.Errorf("it is an orphan: %v, and announces %v after %d attempts", s.orphaned, state.VIPs, speaker.withdrawals)
		}
	})
}

func TestWantIsUnderstood(t *testing.T) {
	socket, speaker := filepath.Join(t.TempDir(), "speaker"), newFakeSpeaker()
	if _, err := NewClient(socket).State(t.Context(), 0); !errors.Is(err, ErrNoSpeaker) {
		t.Errorf("without a speaker, the error is %v", err)
	}
	serve(t, socket, speaker)
	if _, err := Listen(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "a speaker answers") {
		t.Errorf("a second speaker on the socket: %v", err)
	}
	client := NewClient(socket)
	if err := client.request(t.Context(), "PUT", desiredPath, map[string]any{"surprise": 1}, nil); err == nil ||
		!strings.Contains(err.Error(), "reading the wanted routes") {
		t.Errorf("another program's words: %v", err)
	}
	if err := client.Shutdown(t.Context(), "perhaps"); err == nil || !strings.Contains(err.Error(), "stop or restart") {
		t.Errorf("another way to end: %v", err)
	}
}

// FuzzReadStat: whatever a program's name is in a line of /proc/PID/stat, the fields behind it are found.
func FuzzReadStat(f *testing.F) {
	f.Add("jeoul", uint64(12345))
	f.Add("a) Z 1 (b", uint64(0))
	f.Fuzz(func(t *testing.T, name string, start uint64) {
		_, _, _ = readStat(name)
		line := fmt.Sprintf("1 (%s) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 %d 99", name, start)
		if got, state, err := readStat(line); err != nil || got != start || state != "S" {
			t.Errorf("%q was started at %d, state %q, %v", line, got, state, err)
		}
	})
}
