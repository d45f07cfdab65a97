// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"log/slog"
	"slices"
)

// About is the subject of an event. As an attribute of a record (Attr), it goes into the event but not into the log
// line, whose message names it already.
type About struct {
	Kind             Kind
	Service, Backend string
	// By is the name of the client that requested it.
	By string
	// Unlogged: events of this kind are too many for the log.
	Unlogged bool
}

// LogValue leaves it out of log lines.
func (About) LogValue() slog.Value { return slog.GroupValue() }

// Attr returns the subject as an attribute of a log record.
func (a About) Attr() slog.Attr { return slog.Any("about", a) }

// Handler returns a handler that keeps each record from level info on as an event, and hands it on.
func (l *Log) Handler(next slog.Handler) slog.Handler { return &handler{l, next, nil} }

type handler struct {
	log   *Log
	next  slog.Handler
	attrs []slog.Attr
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, record slog.Record) error {
	event, about := Event{At: record.Time, Level: levelOf(record.Level), Message: record.Message}, About{}
	note := func(a slog.Attr) bool {
		if is, ok := a.Value.Any().(About); ok {
			about = is
		} else {
			event.Message += " " + a.Key + "=" + a.Value.Resolve().String()
		}
		return true
	}
	for _, a := range h.attrs {
		note(a)
	}
	record.Attrs(note)
	event.Kind, event.Service, event.Backend, event.By = about.Kind, about.Service, about.Backend, about.By
	if record.Level >= slog.LevelInfo {
		h.log.add(event)
	}
	if about.Unlogged || !h.next.Enabled(ctx, record.Level) {
		return nil
	}
	return h.next.Handle(ctx, record)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.log, h.next.WithAttrs(attrs), slices.Concat(h.attrs, attrs)}
}

// WithGroup groups the attributes that are written; an event has one text.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.log, h.next.WithGroup(name), h.attrs}
}

func levelOf(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "error"
	case level >= slog.LevelWarn:
		return "warning"
	}
	return "info"
}
