// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/events"
)

// serveEvents serves a log of so many events, and returns a logger that writes to it.
func serveEvents(t *testing.T, kept int) (*Client, *slog.Logger) {
	t.Helper()
	happened := events.NewLog(kept, time.Unix(1, 0))
	socket, stop := serveAll(t, Balancer{Events: happened})
	t.Cleanup(stop)
	return NewClient(socket), slog.New(happened.Handler(slog.DiscardHandler))
}

// eventRecorder collects the events that a client gets; enough ends it after so many, with an error.
type eventRecorder struct {
	messages []string
	last     string
	enough   int
}

var errEnough = errors.New("enough")

func (c *eventRecorder) notify(e *events.Event, l *events.Lost) error {
	if e != nil {
		c.messages, c.last = append(c.messages, e.Message), e.ID
	} else {
		c.messages = append(c.messages, fmt.Sprintf("lost %d", l.Events))
	}
	if c.enough > 0 && len(c.messages) >= c.enough {
		return errEnough
	}
	return nil
}

// TestEvents: the events kept, those to come, where a client goes on, and those it has missed.
func TestEvents(t *testing.T) {
	client, log := serveEvents(t, 3)
	log.Info("a")
	log.Warn("b", events.About{Kind: events.KindHealth}.Attr())
	var first eventRecorder
	if err := client.Events(t.Context(), "", false, first.notify); err != nil ||
		!slices.Equal(first.messages, []string{"a", "b"}) {
		t.Errorf("what is kept: %q, %v", first.messages, err)
	}

	coming, done := eventRecorder{enough: 3}, make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		done <- client.Events(t.Context(), "", true, func(e *events.Event, l *events.Lost) error {
			if len(coming.messages) == 0 {
				close(begun)
			}
			return coming.notify(e, l)
		})
	}()
	<-begun
	log.Error("c")
	if err := <-done; !errors.Is(err, errEnough) || !slices.Equal(coming.messages, []string{"a", "b", "c"}) {
		t.Errorf("what comes: %q, %v", coming.messages, err)
	}

	log.Info("d")
	var second eventRecorder
	if err := client.Events(t.Context(), first.last, false, second.notify); err != nil ||
		!slices.Equal(second.messages, []string{"c", "d"}) {
		t.Errorf("after b: %q, %v", second.messages, err)
	}
	for _, m := range []string{"e", "f"} {
		log.Info(m)
	}
	var third eventRecorder
	if err := client.Events(t.Context(), first.last, false, third.notify); err != nil ||
		!slices.Equal(third.messages, []string{"lost 1", "d", "e", "f"}) {
		t.Errorf("after b, of which one is not kept: %q, %v", third.messages, err)
	}
	var strange eventRecorder
	if err := client.Events(t.Context(), "other-7", false, strange.notify); err != nil ||
		!slices.Equal(strange.messages, []string{"lost 0", "d", "e", "f"}) {
		t.Errorf("after an event of another start: %q, %v", strange.messages, err)
	}
}

// TestStreamsAreBounded: more clients than may watch at a time are refused until one has ended.
func TestStreamsAreBounded(t *testing.T) {
	client, log := serveEvents(t, 3)
	log.Info("a")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun, ended := make(chan struct{}), make(chan error)
	for range maxStreams {
		go func() {
			ended <- client.Events(ctx, "", true, func(*events.Event, *events.Lost) error {
				begun <- struct{}{}
				return nil
			})
		}()
	}
	for range maxStreams {
		<-begun
	}
	var problem *Problem
	if err := client.Events(t.Context(), "", true, nil); !errors.As(err, &problem) ||
		problem.Status != http.StatusServiceUnavailable {
		t.Errorf("one more: %v, want 503", err)
	}
	cancel()
	for range maxStreams {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
