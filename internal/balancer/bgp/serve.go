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

// Speaker has the requests that a balancer makes over the socket.
type Speaker interface {
	// Want puts another desired state in force.
	Want(Wanted) error
	// State is the speaker's state, without the fields that only its process knows.
	State() State
	// Changed is closed when the state may be another.
	Changed() <-chan struct{}
	// End ends all sessions.
	End(Ending)
	// Orphan withdraws everything, for no balancer is left.
	Orphan()
}

const (
	// longestAnswer is how long a question for another state waits for one.
	longestAnswer = time.Second
	// maxQuestion bounds a desired state: room for 65,536 VIPs, in bytes.
	maxQuestion = 16 << 20
	farewell    = time.Second
)

// Listen opens the socket of a speaker, for the owner alone. One that answers there already is an error; a dead one's
// socket is removed. Where no file can be made, another socket stands in for it, which clients find.
func Listen(ctx context.Context, socket string) (net.Listener, error) {
	if conn, err := standin.Dial(ctx, socket); err == nil {
		conn.Close()
		return nil, fmt.Errorf("a speaker answers on %s already", socket)
	}
	listener, err := listenOnFile(ctx, socket)
	if durable.Unwritable(err) { // routers are told of the VIPs all the same
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
	ended   context.CancelFunc

	mu     sync.Mutex
	heard  time.Time
	orphan time.Duration
	told   bool
	lonely bool
	// how is how a balancer has ended the speaker; empty: none has.
	how Ending
}

// Serve answers on the listener until the context ends or a balancer ends the speaker, and returns how it is to
// end. Where a balancer has waited for that, it has ended.
func Serve(ctx context.Context, listener net.Listener, speaker Speaker, build string) (Ending, error) {
	pid := os.Getpid()
	start, err := StartOf(pid)
	if err != nil {
		return Stop, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{speaker: speaker, build: build, pid: pid, start: start, ended: cancel, heard: time.Now()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statePath, s.state)
	mux.HandleFunc("PUT "+wantedPath, s.want)
	mux.HandleFunc("POST "+endPath, s.end)
	var watch sync.WaitGroup
	watch.Go(func() { s.watchOrphan(ctx) })
	defer watch.Wait()
	defer cancel()
	err = httpserve.Until(ctx, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, listener, farewell)
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.how, Stop), err
}

// hear notes that a balancer has made a request.
func (s *server) hear() {
	s.mu.Lock()
	s.heard = time.Now()
	s.mu.Unlock()
}

// orphanEvery is how often it is looked at whether a balancer was heard.
const orphanEvery = 500 * time.Millisecond

// longestUseless is how long a speaker waits for a desired state from the balancer that has started it.
const longestUseless = time.Minute

// watchOrphan withdraws everything where no balancer is heard for too long.
func (s *server) watchOrphan(ctx context.Context) {
	ticks := time.NewTicker(orphanEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		s.mu.Lock()
		left := s.told && !s.lonely && s.orphan > 0 && time.Since(s.heard) > s.orphan
		s.lonely = s.lonely || left
		useless := !s.told && time.Since(s.heard) > longestUseless
		s.mu.Unlock()
		if useless {
			s.ended()
		}
		if left {
			s.speaker.Orphan()
		}
	}
}

func (s *server) state(w http.ResponseWriter, r *http.Request) {
	s.hear()
	after, _ := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	bound := time.NewTimer(longestAnswer)
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
	s.hear()
	state := s.speaker.State()
	state.Protocol, state.Build, state.PID, state.Start = Protocol, s.build, s.pid, s.start
	s.mu.Lock()
	state.Told, state.Orphaned = s.told, s.lonely
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(state)
}

func (s *server) want(w http.ResponseWriter, r *http.Request) {
	var wanted Wanted
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxQuestion))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wanted); err != nil {
		http.Error(w, fmt.Sprintf("what is wanted cannot be understood: %v", err), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.heard, s.orphan, s.told, s.lonely = time.Now(), wanted.Orphan, true, false
	s.mu.Unlock()
	if err := s.speaker.Want(wanted); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	}
}

func (s *server) end(w http.ResponseWriter, r *http.Request) {
	var how end
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&how); err != nil || how.How != Stop &&
		how.How != Restart {
		http.Error(w, "say how to end: stop or restart", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.how = how.How
	s.mu.Unlock()
	s.speaker.End(how.How)
	s.ended()
}
