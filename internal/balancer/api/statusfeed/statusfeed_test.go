// SPDX-License-Identifier: Apache-2.0

package statusfeed

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestWatchersShare: however many watch, a status is made once for all of them, at most a bounded part of the time is
// taken, and none is made when nobody watches.
func TestWatchersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cost = 100 * time.Millisecond
		var made atomic.Int64
		p := New(func() (ops.Status, error) {
			made.Add(1)
			time.Sleep(cost)
			return ops.Status{}, nil
		}, events.NewLog(events.DefaultCapacity, time.Now()), nil)
		var watchers []*Watcher
		for range 3 {
			watchers = append(watchers, p.Subscribe(true, nil))
		}
		time.Sleep(time.Minute)
		n := made.Load()
		if most := int64(time.Minute/cost) / 40; n == 0 || n > most {
			t.Errorf("%d statuses of %s in a minute, want 1 to %d", n, cost, most)
		}
		first := <-watchers[0].Frames
		if second := <-watchers[1].Frames; &first[0] != &second[0] {
			t.Error("the same status was written twice")
		}
		for _, w := range watchers {
			p.Unsubscribe(w)
		}
		time.Sleep(time.Minute)
		n = made.Load()
		time.Sleep(time.Minute)
		if made.Load() != n {
			t.Error("statuses are made though nobody watches")
		}
		p.Unsubscribe(p.Subscribe(false, nil))
		time.Sleep(time.Minute)
	})
}

// TestEventsAreShownAtOnce: a status follows an event at once however much it costs, and a flood of events costs no
// more than the share that there may be otherwise.
func TestEventsAreShownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cost = 100 * time.Millisecond
		var made atomic.Int64
		log := events.NewLog(events.DefaultCapacity, time.Now())
		say := slog.New(log.Handler(slog.DiscardHandler))
		p := New(func() (ops.Status, error) {
			made.Add(1)
			time.Sleep(cost)
			return ops.Status{}, nil
		}, log, nil)
		w := p.Subscribe(true, nil)
		time.Sleep(time.Minute + time.Second)
		<-w.Frames
		say.Info("a backend is unhealthy")
		began := time.Now()
		<-w.Frames
		if late := time.Since(began); late > cost+minInterval {
			t.Errorf("a status came %v after the event", late)
		}
		before := made.Load()
		for range 600 {
			say.Info("another")
			time.Sleep(100 * time.Millisecond)
		}
		if n, most := made.Load()-before, int64(float64(time.Minute/cost)*MaxShare)+maxAhead; n > most {
			t.Errorf("%d statuses in a minute of events, want at most %d", n, most)
		}
		p.Unsubscribe(w)
		time.Sleep(time.Minute)
	})
}
