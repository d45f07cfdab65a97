// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/jeoul/jeoul/internal/balancer/api/statusfeed"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

const (
	eventsPath = "/v1/events"
	eventsType = "text/event-stream"
	// heartbeatInterval is the interval of comments in a stream without events: proxies close idle connections, and a
	// write shows that a client is gone.
	heartbeatInterval = 15 * time.Second
	// maxStreams bounds the concurrent streams of events.
	maxStreams = 64
)

// EventsParams has the first event of a stream; exported, for huma to find it.
type EventsParams struct {
	Last   string `header:"Last-Event-ID" doc:"The id of the last event that the client has; empty: all that are kept are sent"`
	Follow bool   `query:"follow" default:"true" doc:"False ends the stream after the events that there are"`
}

// handleEvents adds the stream of events.
func (b Balancer) handleEvents(a huma.API) {
	schemaOf[events.Event](a)
	streams := make(chan struct{}, maxStreams)
	stream := &huma.Schema{Type: huma.TypeString,
		Description: "Server-sent events: \"event\" has an Event as data and its id; \"lost\" has a Lost as data, before the events that come after a gap."}
	schemaOf[events.Lost](a)
	addEndpoint(a, endpoint{method: http.MethodGet, path: eventsPath, id: "watch-events",
		summary: "The balancer's events, as server-sent events", kind: eventsType, answer: stream},
		func(_ context.Context, in *EventsParams) (*huma.StreamResponse, error) {
			select {
			case streams <- struct{}{}:
			default:
				return nil, errTooManyStreams
			}
			reader, follow := b.Events.After(in.Last), in.Follow
			return &huma.StreamResponse{Body: func(ctx huma.Context) {
				defer func() { <-streams }()
				streamEvents(ctx, reader, follow)
			}}, nil
		})
}

// streamEvents sends events until the client hangs up or does not read, or the server stops.
func streamEvents(stream huma.Context, reader *events.Reader, follow bool) {
	r, w := humago.Unwrap(stream)
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", eventsType)
	w.Header().Set("Cache-Control", "no-store")
	for r.Context().Err() == nil {
		read, lost := reader.Read()
		if len(read) == 0 && lost == nil && !follow {
			return
		}
		_ = control.SetWriteDeadline(time.Now().Add(readerTimeout))
		if sendEvents(w, read, lost) != nil || control.Flush() != nil {
			return
		}
		if len(read) == 0 && follow {
			ctx, cancel := context.WithTimeout(r.Context(), heartbeatInterval)
			reader.Wait(ctx)
			cancel()
		}
	}
}

// recentEvents is the number of events that a watcher gets first, unless it names an event to continue after.
const recentEvents = 200

// WatchParams has the parameters of a watcher's request; exported, for huma to find it.
type WatchParams struct {
	Last     string   `header:"Last-Event-ID" doc:"The id of the last event that the client has; empty: the latest 200 are sent first"`
	Services []string `query:"service,explode" doc:"The services whose backends are sent; of all others, totals are"`
	All      bool     `query:"all" doc:"True: the backends of all services are sent"`
}

// session is the name and role that a client has, and the balancer that answers.
type session struct {
	Client string   `json:"client" doc:"Who asks, as events and operations name it"`
	Role   ops.Role `json:"role" enum:"read,operate,configure" doc:"The client's permissions; each role includes those before it"`
	Host   string   `json:"host" doc:"The name of the balancer's machine"`
	// Version is the version of the program.
	Version string `json:"version"`
}

// handleWatches adds the stream of statuses.
func (b Balancer) handleWatches(a huma.API) {
	schemaOf[ops.Watched](a)
	addEndpoint(a, endpoint{method: http.MethodGet, path: sessionPath, id: "get-session",
		summary: "Who the API takes the client for, what that may do, and which balancer answers"},
		func(ctx context.Context, _ *emptyRequest) (*answer[session], error) {
			host, err := os.Hostname()
			client := callerOf(ctx)
			return &answer[session]{session{Client: client.name(), Role: client.client.Role, Host: host,
					Version: b.Version}},
				err
		})
	stream := &huma.Schema{Type: huma.TypeString,
		Description: "Server-sent events: \"status\" has a Watched as data, at least " +
			"every few seconds; \"event\" and \"lost\" are those of /v1/events."}
	p := statusfeed.New(b.Status, b.Events, func(err error) any { return problemOf(err) })
	watchers := make(chan struct{}, maxStreams)
	addEndpoint(a, endpoint{method: http.MethodGet, path: watchPath, id: "watch-status", kind: eventsType,
		answer:  stream,
		summary: "The balancer as it is, each second and after each event, and its events, as server-sent events"},
		func(_ context.Context, in *WatchParams) (*huma.StreamResponse, error) {
			select {
			case watchers <- struct{}{}:
			default:
				return nil, errTooManyStreams
			}
			reader := b.Events.Latest(recentEvents)
			if in.Last != "" {
				reader = b.Events.After(in.Last)
			}
			wanted := *in
			return &huma.StreamResponse{Body: func(ctx huma.Context) {
				defer func() { <-watchers }()
				w := p.Subscribe(wanted.All, wanted.Services)
				defer p.Unsubscribe(w)
				streamWatch(ctx, w, reader)
			}}, nil
		})
}

// streamWatch sends statuses and events until the client hangs up or does not read, or the server stops.
func streamWatch(stream huma.Context, watcher *statusfeed.Watcher, reader *events.Reader) {
	r, w := humago.Unwrap(stream)
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", eventsType)
	w.Header().Set("Cache-Control", "no-store")
	for frame := []byte(nil); ; {
		read, lost := reader.Read()
		_ = control.SetWriteDeadline(time.Now().Add(readerTimeout))
		if len(read) > 0 || lost != nil {
			if sendEvents(w, read, lost) != nil {
				return
			}
		}
		if _, err := w.Write(frame); err != nil || control.Flush() != nil {
			return
		}
		frame = nil
		select {
		case <-r.Context().Done():
			return
		case <-reader.More():
		case frame = <-watcher.Frames:
		}
	}
}

// sendEvents writes events, or a comment if there are none.
func sendEvents(w io.Writer, read []events.Event, lost *events.Lost) error {
	var text bytes.Buffer
	put := func(kind, id string, data any) error {
		line, err := json.Marshal(data)
		if id != "" {
			fmt.Fprintf(&text, "id: %s\n", id)
		}
		fmt.Fprintf(&text, "event: %s\ndata: %s\n\n", kind, line)
		return err
	}
	var err error
	if lost != nil {
		err = put("lost", "", lost)
	}
	for _, e := range read {
		err = errors.Join(err, put("event", e.ID, e))
	}
	if text.Len() == 0 {
		text.WriteString(": nothing new\n\n")
	}
	if err == nil {
		_, err = text.WriteTo(w)
	}
	return err
}

// Events passes events after that of an id (empty: all that are kept) to notify, and how many were lost, until the
// context ends (no error), the daemon has sent all that there are and is not to be followed, or notify returns an
// error, which it returns. Errors: ErrNotRunning, ErrNoRights, or the daemon's.
func (c *Client) Events(ctx context.Context, after string, follow bool,
	notify func(*events.Event, *events.Lost) error) error {
	body, err := c.openWith(ctx, c.streamClient, http.MethodGet, fmt.Sprintf("%s?follow=%t", eventsPath, follow), nil,
		http.Header{"Last-Event-ID": {after}})
	if err != nil {
		return fmt.Errorf("ask the daemon on %s: %w", c.at, err)
	}
	defer body.Close()
	lines, kind := bufio.NewReader(body), ""
	for {
		line, err := lines.ReadString('\n')
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case ctx.Err() != nil:
			return nil
		case err == io.EOF && !follow:
			return nil
		case err != nil:
			return fmt.Errorf("the daemon on %s broke off: %w", c.at, err)
		case name == "event":
			kind = value
		case name == "data":
			if err := notifyOne(kind, value, notify); err != nil {
				return err
			}
		}
	}
}

func notifyOne(kind, data string, notify func(*events.Event, *events.Lost) error) error {
	var event events.Event
	var lost events.Lost
	switch kind {
	case "event":
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return fmt.Errorf("an event of the daemon cannot be understood (is it of another version?): %w", err)
		}
		return notify(&event, nil)
	case "lost":
		if err := json.Unmarshal([]byte(data), &lost); err != nil {
			return fmt.Errorf("an event of the daemon cannot be understood (is it of another version?): %w", err)
		}
		return notify(nil, &lost)
	}
	return nil
}
