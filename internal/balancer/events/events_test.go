// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/test/testdocs"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

func add(l *Log, messages ...string) {
	for _, m := range messages {
		l.add(Event{Message: m})
	}
}

// read returns the messages of one reading.
func read(r *Reader) (messages []string, lost *Lost) {
	events, lost := r.Read()
	for _, e := range events {
		messages = append(messages, e.Message)
	}
	return messages, lost
}

// TestReader: each event is read once and in order, from where a client left off, and is told how many it has missed.
func TestReader(t *testing.T) {
	l := NewLog(3, time.Unix(1, 0))
	r := l.After("")
	if got, lost := read(r); got != nil || lost != nil {
		t.Errorf("of nothing: %q, %v", got, lost)
	}
	add(l, "a", "b")
	events, _ := l.After("").Read()
	second := events[1].ID
	if got, lost := read(r); cmp.Diff([]string{"a", "b"}, got) != "" || lost != nil {
		t.Errorf("the first two: %q, %v", got, lost)
	}
	add(l, "c", "d", "e")
	if got, lost := read(l.After(second)); cmp.Diff([]string{"c", "d", "e"}, got) != "" || lost != nil {
		t.Errorf("after the second: %q, %v", got, lost)
	}
	add(l, "f")
	if got, lost := read(l.After(second)); cmp.Diff([]string{"d", "e", "f"}, got) != "" || lost == nil ||
		lost.Events != 1 {
		t.Errorf("after the second, with one lost: %q, %v", got, lost)
	}
	if got, lost := read(r); cmp.Diff([]string{"d", "e", "f"}, got) != "" || lost == nil || lost.Events != 1 {
		t.Errorf("a slow reader: %q, %v", got, lost)
	}
	if got, lost := read(r); got != nil || lost != nil {
		t.Errorf("again: %q, %v", got, lost)
	}
	for _, id := range []string{"x", "x-1", l.id(99), "-", l.start + "-", l.start + "-x"} {
		if got, lost := read(l.After(id)); len(got) != 3 || lost == nil || lost.Events != 0 {
			t.Errorf("after %q: %q, %v", id, got, lost)
		}
	}
}

// TestLatest: a reader begins with the latest events, as far as there are any.
func TestLatest(t *testing.T) {
	l := NewLog(3, time.Unix(1, 0))
	if got, lost := read(l.Latest(2)); got != nil || lost != nil {
		t.Errorf("of nothing: %q, %v", got, lost)
	}
	add(l, "a", "b", "c", "d")
	for n, want := range [][]string{nil, {"d"}, {"c", "d"}, {"b", "c", "d"}, {"b", "c", "d"}} {
		r := l.Latest(n)
		if got, lost := read(r); cmp.Diff(want, got) != "" || lost != nil {
			t.Errorf("the latest %d: %q, %v, want %q", n, got, lost, want)
		}
		select {
		case <-r.More():
			t.Errorf("after the latest %d, there is more", n)
		default:
		}
	}
	r := l.Latest(1)
	select {
	case <-r.More():
	default:
		t.Error("before the latest, there is nothing")
	}
}

// TestWait: a reader waits for the next event, and no longer than its context.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLog(10, time.Now())
		r := l.After("")
		r.Read()
		done := make(chan []string)
		go func() {
			r.Wait(t.Context())
			got, _ := read(r)
			done <- got
		}()
		synctest.Wait()
		select {
		case got := <-done:
			t.Errorf("it did not wait, and read %q", got)
		default:
		}
		add(l, "a")
		if got := <-done; len(got) != 1 {
			t.Errorf("read %q", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
		defer cancel()
		r.Wait(ctx)
	})
}

// TestHandler: each logged line is an event, once; its subject is no part of the line, and an entry that is too much
// for the log is an event all the same.
func TestHandler(t *testing.T) {
	var text bytes.Buffer
	l := NewLog(10, time.Unix(1, 0))
	log := slog.New(l.Handler(slog.NewTextHandler(&text,
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
	about := About{Kind: KindHealth, Service: "web", Backend: "web01", By: "kim"}
	log.Warn("it fails", about.Attr())
	log.With("a", 1).Info("plain", "b", 2)
	log.WithGroup("c").Info("grouped", "d", 3)
	log.Debug("nothing")
	about.Unlogged = true
	log.Error("too much", about.Attr())
	want := "level=WARN msg=\"it fails\"\nlevel=INFO msg=plain a=1 b=2\nlevel=INFO msg=grouped c.d=3\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
	events, _ := l.After("").Read()
	var got []string
	for _, e := range events {
		got = append(got, strings.Join([]string{e.Level, string(e.Kind), e.Service, e.Backend, e.By, e.Message}, "|"))
	}
	wanted := []string{"warning|health|web|web01|kim|it fails", "info|notice||||plain a=1 b=2", "info|notice||||grouped d=3",
		"error|health|web|web01|kim|too much"}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	log.Info(strings.Repeat("é", maxMessage))
	if events, _ = l.After(events[3].ID).Read(); len(events) != 1 || len(events[0].Message) > maxMessage+4 ||
		strings.ContainsRune(events[0].Message, '\uFFFD') {
		t.Errorf("a long message: %s", fmt.Sprint(events))
	}
}

// TestKinds: the API's list of kinds has all of them.
func TestKinds(t *testing.T) {
	field, _ := reflect.TypeFor[Event]().FieldByName("Kind")
	var names []string
	for _, kind := range Kinds {
		names = append(names, string(kind))
	}
	if got := strings.Join(names, ","); field.Tag.Get("enum") != got {
		t.Errorf("the kinds are %s, and the API says %s", got, field.Tag.Get("enum"))
	}
}

// TestKindsAreDocumented: the API's guide names each kind of event.
func TestKindsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(testdocs.Root(t), "docs/guides/api.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "`kind` is ")
	list, _, _ = strings.Cut(list, "\n\n")
	for _, kind := range Kinds {
		if !strings.Contains(list, "`"+string(kind)+"`") {
			t.Errorf("docs/guides/api.md does not name the kind %s", kind)
		}
	}
}
