// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/httpserve"
	"github.com/jeoul/jeoul/internal/host/standin"
)

// Speaker serves the requests that a balancer makes over the socket.
type Speaker interface {
	// Apply brings the speaker to another desired state.
	Apply(Desired) error
	// State is the speaker's state, without the fields that only its process knows.
	State() State
	// Changed returns a channel that is closed when the state may have changed.
	Changed() <-chan struct{}
	// Shutdown ends all sessions.
	Shutdown(ShutdownMode)
	// WithdrawAll withdraws all routes, because no balancer is left. After an error, it is called again.
	WithdrawAll() error
}

const (
	// longPollTimeout is how long a request for another state waits for one.
	longPollTimeout = time.Second
	// maxRequest bounds a desired state: room for 65,536 VIPs, in bytes.
	maxRequest      = 16 << 20
	shutdownTimeout = time.Second
)

// Listen opens the socket of a speaker, for the owner alone. A speaker that answers there already is an error; the
// socket of a dead one is removed. If no file can be made, Listen opens an abstract socket, which clients find.
func Listen(ctx context.Context, socket string) (net.Listener, error) {
	if conn, err := standin.Dial(ctx, socket); err == nil {
		conn.Close()
		return nil, fmt.Errorf("a speaker answers on %s already", socket)
	}
	listener, err := listenOnFile(ctx, socket)
	if durable.Unwritable(err) { // the VIPs are announced all the same
		return standin.Listen(ctx, socket)
	}
	return listener, err
}

// listenOnFile opens the socket's file.
func listenOnFile(ctx context.Context, socket string) (net.Listener, error) {
	// Bound under another name first: nothing connects before the socket is the owner's alone.
	made := socket + ".new"
	if err := os.RemoveAll(made); err != nil {
		return nil, fmt.Errorf("open the speaker's socket: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", made)
	if err != nil {
		return nil, fmt.Errorf("open the speaker's socket: %w", err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, socket)); err != nil {
		listener.Close()
		return nil, fmt.Errorf("open the speaker's socket: %w", err)
	}
	return listener, nil
}

// server answers for a speaker.
type server struct {
	speaker Speaker
	build   string
	pid     int
	start   uint64
	stop    context.CancelFunc

	// applying is held while a desired state is applied, or routes are withdrawn for lack of a balancer: what was
	// decided last is done last.
	applying sync.Mutex

	mu            sync.Mutex
	lastRequest   time.Time
	orphanTimeout time.Duration
	configured    bool
	orphaned      bool
	// unfinished: as an orphan, the speaker could not withdraw all routes yet.
	unfinished bool
	// shutdownMode is how a balancer has shut the speaker down; empty: none has.
	shutdownMode ShutdownMode
}

// Serve serves on the listener until the context ends or a balancer shuts the speaker down, and returns how the speaker
// is to shut down. After a balancer's request, it has shut down already.
func Serve(ctx context.Context, listener net.Listener, speaker Speaker, build string) (ShutdownMode, error) {
	pid := os.Getpid()
	start, err := ProcessStart(pid)
	if err != nil {
		return Stop, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{speaker: speaker, build: build, pid: pid, start: start, stop: cancel, lastRequest: time.Now()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statePath, s.handleState)
	mux.HandleFunc("PUT "+desiredPath, s.handleDesired)
	mux.HandleFunc("POST "+endPath, s.handleShutdown)
	var watch sync.WaitGroup
	watch.Go(func() { s.watchOrphan(ctx) })
	defer watch.Wait()
	defer cancel()
	err = httpserve.Until(ctx, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, listener,
		shutdownTimeout)
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.shutdownMode, Stop), err
}

// recordRequest records that a balancer has made a request.
func (s *server) recordRequest() {
	s.mu.Lock()
	s.lastRequest = time.Now()
	s.mu.Unlock()
}

// orphanCheckInterval is the interval between two checks of when a balancer made its last request.
const orphanCheckInterval = 500 * time.Millisecond

// configureTimeout is how long a speaker waits for a desired state from the balancer that has started it.
const configureTimeout = time.Minute

// watchOrphan withdraws all routes when no balancer has made a request for OrphanTimeout.
func (s *server) watchOrphan(ctx context.Context) {
	ticks := time.NewTicker(orphanCheckInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		s.mu.Lock()
		useless := !s.configured && time.Since(s.lastRequest) > configureTimeout
		s.mu.Unlock()
		if useless {
			s.stop()
		}
		s.withdrawIfOrphaned()
	}
}

// withdrawIfOrphaned withdraws all routes if no balancer is left, unless it has done so before.
func (s *server) withdrawIfOrphaned() {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mu.Lock()
	left := s.configured && s.orphanTimeout > 0 && time.Since(s.lastRequest) > s.orphanTimeout &&
		(!s.orphaned || s.unfinished)
	s.orphaned = s.orphaned || left
	s.mu.Unlock()
	if !left {
		return
	}
	err := s.speaker.WithdrawAll()
	s.mu.Lock()
	s.unfinished = err != nil
	s.mu.Unlock()
}

// handleState answers with the speaker's state as soon as it differs from the one that the balancer knows.
func (s *server) handleState(w http.ResponseWriter, r *http.Request) {
	s.recordRequest()
	after, _ := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	bound := time.NewTimer(longPollTimeout)
	defer bound.Stop()
	for waiting := true; waiting; {
		changed := s.speaker.Changed()
		if s.speaker.State().Number != after {
			break
		}
		select {
		case <-changed:
		case <-bound.C:
			waiting = false
		case <-r.Context().Done():
			return
		}
	}
	s.recordRequest()
	state := s.speaker.State()
	state.Protocol, state.Build, state.PID, state.Start = Protocol, s.build, s.pid, s.start
	s.mu.Lock()
	state.Configured, state.Orphaned = s.configured, s.orphaned
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(state)
}

// handleDesired applies a desired state.
func (s *server) handleDesired(w http.ResponseWriter, r *http.Request) {
	var desired Desired
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&desired); err != nil {
		http.Error(w, fmt.Sprintf("reading the wanted routes: %v", err), http.StatusBadRequest)
		return
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mu.Lock()
	s.lastRequest, s.orphanTimeout, s.configured = time.Now(), desired.OrphanTimeout, true
	s.orphaned, s.unfinished = false, false
	s.mu.Unlock()
	if err := s.speaker.Apply(desired); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	}
}

// handleShutdown shuts the speaker down.
func (s *server) handleShutdown(w http.ResponseWriter, r *http.Request) {
	var how shutdownRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&how); err != nil || how.Mode != Stop &&
		how.Mode != Restart {
		http.Error(w, "say how to end: stop or restart", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.shutdownMode = how.Mode
	s.mu.Unlock()
	s.speaker.Shutdown(how.Mode)
	s.stop()
}
