// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/events"
)

const (
	// watchGap is the least time between two readings: events come in bursts, and a reading costs the daemon CPU time.
	watchGap = 250 * time.Millisecond
	// watchRetry is the interval of attempts to reach a daemon that does not answer, and watchRetryLimit bounds the
	// time until it is back: a restart takes seconds.
	watchRetry, watchRetryLimit = time.Second, 30 * time.Second
)

// follower prints objects of a kind when they change.
type follower[T any] struct {
	client *api.Client
	query  query[T]
	out    *getWriter[T]
	// notices receives notices of interruptions for a person.
	notices io.Writer
	// before holds the objects as they were printed last, by name.
	before map[string]T
	// retry and retryLimit are watchRetry and watchRetryLimit, except in tests.
	retry, retryLimit time.Duration
}

// watch prints all objects and then the changes, until the context ends (no error) or the daemon has gone and does not
// come back.
func (w *follower[T]) watch(ctx context.Context) error {
	found, err := selectItems(ctx, w.client, w.out.kind, w.query)
	if err != nil {
		return err
	}
	if err := w.begin(found); err != nil {
		return err
	}
	// A watched object may be removed and added again.
	w.out.kind.absent = true
	for {
		err := w.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		fmt.Fprintf(w.notices, "jeoul: %v; waiting up to %s for it to come back\n", err, w.retryLimit)
		if err := w.reconnect(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(w.notices, "jeoul: the daemon on %s answers again\n", w.client.At())
	}
}

// begin prints all objects.
func (w *follower[T]) begin(found []T) error {
	w.before = map[string]T{}
	for _, one := range found {
		w.before[w.out.kind.name(one)] = w.out.kind.stable(one)
	}
	return w.out.begin(found)
}

// follow reads again after events, until their stream ends, and returns the reason. All kept events come first, so that
// none of those since the last reading is missed.
func (w *follower[T]) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news, over := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		over <- w.client.Events(ctx, "", true, func(*events.Event, *events.Lost) error {
			select {
			case news <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	for {
		select {
		case err := <-over:
			return err
		case <-news:
		}
		if err := w.read(ctx); err != nil {
			return err
		}
		select {
		case err := <-over:
			return err
		case <-time.After(watchGap):
		}
	}
}

// reconnect retries until the daemon answers again.
func (w *follower[T]) reconnect(ctx context.Context) error {
	bound := time.After(w.retryLimit)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-bound:
			return fmt.Errorf("the daemon on %s has gone, and has not come back within %s", w.client.At(), w.retryLimit)
		case <-time.After(w.retry):
		}
		err := w.read(ctx)
		if err == nil || errors.Is(err, api.ErrNoRights) {
			return err
		}
	}
}

// read prints the changes since the last reading.
func (w *follower[T]) read(ctx context.Context) error {
	found, err := selectItems(ctx, w.client, w.out.kind, w.query)
	if err != nil {
		return err
	}
	gone := w.before
	w.before = make(map[string]T, len(found))
	for _, one := range found {
		name, now := w.out.kind.name(one), w.out.kind.stable(one)
		was, known := gone[name]
		delete(gone, name)
		w.before[name] = now
		if known && reflect.DeepEqual(was, now) {
			continue
		}
		if err := w.out.change(one, false); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		if err := w.out.change(gone[name], true); err != nil {
			return err
		}
	}
	return nil
}

// begin prints the watched objects, in a form that change continues.
func (w *getWriter[T]) begin(found []T) error {
	if w.format == "text" || w.format == "wide" {
		return w.table(found)
	}
	for _, one := range found {
		if err := w.change(one, false); err != nil {
			return err
		}
	}
	return nil
}

// removed notifies a program that an object no longer exists.
type removed[T any] struct {
	Removed T `json:"removed"`
}

// change prints an object that has changed, or was removed: a row, a line of JSON, a document of YAML or a name.
func (w *getWriter[T]) change(one T, gone bool) error {
	var value any = one
	if gone {
		value = removed[T]{one}
	}
	switch w.format {
	case "json":
		return json.NewEncoder(w.to).Encode(value)
	case "yaml":
		if _, err := fmt.Fprintln(w.to, "---"); err != nil {
			return err
		}
		return writeYAML(w.to, value)
	case "name":
		_, err := fmt.Fprintln(w.to, w.kind.name(one))
		return err
	}
	columns := w.shown()
	cells := cellsOf(columns, one)
	for i := range columns {
		if gone && columns[i].showsRemoval {
			cells[i] = "removed"
		}
	}
	return w.row(columns, cells)
}

// watchEvents prints the kept events, or those after the event with an id, and new ones; after a restart of the daemon
// it continues after the last one.
func watchEvents(ctx context.Context, client *api.Client, out *getWriter[events.Event], q query[events.Event],
	last string,
	says io.Writer) error {
	if err := out.begin(nil); err != nil {
		return err
	}
	started := last
	var failed time.Time // since when the daemon cannot be reached; zero if it can
	for {
		err := client.Events(ctx, last, true, func(event *events.Event, lost *events.Lost) error {
			failed = time.Time{}
			if lost != nil {
				return writeEvent(says, nil, lost)
			}
			last = event.ID
			if !q.matches(out.kind, *event) {
				return nil
			}
			return out.change(*event, false)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case last == started || !failed.IsZero() && time.Since(failed) > watchRetryLimit:
			return err
		case failed.IsZero():
			failed = time.Now()
			fmt.Fprintf(says, "jeoul: %v; waiting up to %s for it to come back\n", err, watchRetryLimit)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchRetry):
		}
	}
}
