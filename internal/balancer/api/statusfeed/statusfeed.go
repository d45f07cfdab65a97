// SPDX-License-Identifier: Apache-2.0

// Package statusfeed reads the status of a balancer once for all its watchers.
package statusfeed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

const (
	// interval is the time between two statuses without an event, and minInterval the least time between two: an event
	// causes one at once.
	interval, minInterval = time.Second, 200 * time.Millisecond
	// MaxShare bounds the share of time spent on statuses, for any number of watchers and backends.
	MaxShare = 1.0 / 50
	// maxAhead is the number of statuses that events may cause before their time, which delays later ones: a watcher
	// sees a transition at once however much a status costs, and a flood of events costs no more than MaxShare.
	maxAhead = 4
	// costSamples is the number of statuses of which the shortest time counts as the cost: other work on the machine
	// only adds to it.
	costSamples = 8
)

// Watcher is a stream that gets statuses.
type Watcher struct {
	// wanted names the services whose backends it gets: watchers with equal ones get the same bytes.
	wanted string
	with   func(service string) bool
	// Frames has the latest status that the stream has not sent: a slow stream misses statuses, and blocks nothing.
	Frames chan []byte
}

// setFrame replaces a frame that was not sent.
func (w *Watcher) setFrame(frame []byte) {
	select {
	case <-w.Frames:
	default:
	}
	select {
	case w.Frames <- frame:
	default:
	}
}

// Feed reads the status while it has watchers: once for all of them, and encodes it once for all with the same form.
type Feed struct {
	status  func() (ops.Status, error)
	events  *events.Log
	problem func(error) any
	// frameSize is the length of the last frame, with which the next one is allocated; only run uses it.
	frameSize int

	mu       sync.Mutex
	watchers map[*Watcher]struct{}
	// subscribed is closed when a watcher subscribes.
	subscribed chan struct{}
	// running: the goroutine of run is running.
	running bool
	start   time.Time
}

// New returns a feed that reads statuses; problem returns the form of an error for a watcher.
func New(status func() (ops.Status, error), log *events.Log, problem func(error) any) *Feed {
	return &Feed{status: status, events: log, problem: problem, watchers: map[*Watcher]struct{}{},
		subscribed: make(chan struct{}), start: time.Now()}
}

// Subscribe adds a watcher of the backends of some services, or of all.
func (f *Feed) Subscribe(all bool, of []string) *Watcher {
	services := slices.Sorted(slices.Values(of))
	w := &Watcher{Frames: make(chan []byte, 1), wanted: fmt.Sprintf("%t %q", all, services)}
	w.with = func(service string) bool {
		_, found := slices.BinarySearch(services, service)
		return all || found
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers[w] = struct{}{}
	close(f.subscribed)
	f.subscribed = make(chan struct{})
	if !f.running {
		f.running = true
		go f.run()
	}
	return w
}

// Unsubscribe removes a watcher.
func (f *Feed) Unsubscribe(w *Watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, w)
}

// run sends statuses until there are no watchers.
func (f *Feed) run() {
	reader := f.events.Latest(0)
	var spent costTracker
	for {
		f.mu.Lock()
		watchers, joined := make([]*Watcher, 0, len(f.watchers)), f.subscribed
		for w := range f.watchers {
			watchers = append(watchers, w)
		}
		f.running = len(watchers) > 0
		f.mu.Unlock()
		if len(watchers) == 0 {
			return
		}
		for more, _ := reader.Read(); len(more) > 0; more, _ = reader.Read() {
		}
		began := time.Now()
		f.send(watchers)
		now := time.Now()
		early, interval := spent.next(began, now)
		wait(early.Sub(now), nil, nil)
		wait(time.Until(interval), reader.More(), joined)
	}
}

// costTracker is the cost of the latest statuses.
type costTracker struct {
	latest []time.Duration
	// paidAt is the time at which all of them together have taken no more than MaxShare.
	paidAt time.Time
}

// next records a status made between two times, and returns the time of the next one: after an event, and without one.
func (s *costTracker) next(began, ended time.Time) (early, usual time.Time) {
	s.latest = append(s.latest[max(0, len(s.latest)-costSamples+1):], ended.Sub(began))
	pause := time.Duration(float64(slices.Min(s.latest)) / MaxShare)
	s.paidAt = latestTime(s.paidAt, began).Add(pause)
	early = latestTime(began.Add(minInterval), s.paidAt.Add(-maxAhead*pause))
	return early, latestTime(began.Add(interval), s.paidAt, early)
}

// latestTime returns the last of some times.
func latestTime(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// wait returns after a time, or when one of two channels is closed; nil ones never are.
func wait(d time.Duration, a, b <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a:
	case <-b:
	}
}

// send sends the watchers a status.
func (f *Feed) send(watchers []*Watcher) {
	status, err := f.status()
	at := time.Now()
	frames := map[string][]byte{}
	for _, w := range watchers {
		frame := frames[w.wanted]
		if frame == nil {
			frame = f.frameOf("status", status.Watched(at, at.Sub(f.start), w.with), err)
			frames[w.wanted] = frame
		}
		w.setFrame(frame)
	}
}

// frameOf returns one server-sent event; where there is an error, it is a "problem".
func (f *Feed) frameOf(kind string, data any, err error) []byte {
	var frame bytes.Buffer
	frame.Grow(f.frameSize)
	if err == nil {
		err = writeFrame(&frame, kind, data)
	}
	if err != nil {
		frame.Reset()
		_ = writeFrame(&frame, "problem", f.problem(err)) // texts and numbers
	}
	f.frameSize = frame.Len()
	return frame.Bytes()
}

// writeFrame writes an event whose data is one line of JSON.
func writeFrame(frame *bytes.Buffer, kind string, data any) error {
	fmt.Fprintf(frame, "event: %s\ndata: ", kind)
	// The encoder ends the line.
	if err := json.NewEncoder(frame).Encode(data); err != nil {
		return err
	}
	return frame.WriteByte('\n')
}
