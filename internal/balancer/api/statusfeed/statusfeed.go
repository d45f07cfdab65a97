// SPDX-License-Identifier: Apache-2.0

// Package statusfeed makes the statuses that watchers of a balancer get: one status for all of them.
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
	// interval is the time from one status to the next where nothing happens, and gap the least time between two: an
	// event has one made at once.
	interval, minInterval = time.Second, 200 * time.Millisecond
	// MaxShare bounds the cost of statuses for any number of watchers and backends: making them takes at most this part
	// of the time.
	MaxShare = 1.0 / 50
	// maxAhead is how many statuses may be made before their time, for events, which those after them wait for: who
	// watches sees a transition at once however much a status costs, and a flood of events costs no more than Share.
	maxAhead = 4
	// costSamples is of how many statuses the least time counts as the cost of one: other work on the machine only adds
	// to it.
	costSamples = 8
)

// Watcher is a stream that gets statuses.
type Watcher struct {
	// wanted names the services whose backends it gets: equal ones get the same bytes.
	wanted string
	with   func(service string) bool
	// Frames holds the latest status that the stream has not sent: one that is slow misses statuses, and nothing waits
	// for it.
	Frames chan []byte
}

// setFrame has a frame take the place of one that was not sent.
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

// Feed reads the status while it has watchers: once for all of them, and encodes it once for all that ask for the same
// form.
type Feed struct {
	status  func() (ops.Status, error)
	events  *events.Log
	problem func(error) any
	// frameSize is the length of the last frame, which the next one is allocated with; run alone has it.
	frameSize int

	mu       sync.Mutex
	watchers map[*Watcher]struct{}
	// subscribed is closed when a watcher subscribes.
	subscribed chan struct{}
	// running: a goroutine makes statuses.
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

// run makes statuses until nobody watches.
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
	// paidAt is when all of them together have taken no more than MaxShare of the time.
	paidAt time.Time
}

// next counts a status that was made from one time to another, and says when the next one is made: where there is an
// event, and otherwise.
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
