// SPDX-License-Identifier: Apache-2.0

// Package events keeps the latest events of a balancer: every line of its log from level info on is an event with an
// id, so that the log and the events of the API never differ. It does not depend on HTTP.
package events

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// DefaultCapacity is the number of events that a log keeps; each takes some 300 bytes.
const DefaultCapacity = 4096

// maxMessage bounds the text of an event, in bytes.
const maxMessage = 4096

// Kind names the subject of an event.
type Kind string

// The kinds.
const (
	// KindHealth: the result of a backend's health checks, or its agent's report, has changed.
	KindHealth Kind = "health"
	// KindPath: a backend was found on the network, has moved, or was lost.
	KindPath Kind = "path"
	// KindOperation: a backend was drained, enabled or given another weight, or that was undone.
	KindOperation Kind = "operation"
	// KindReload: the configuration file was read again, and is in force or refused.
	KindReload Kind = "reload"
	// KindConfiguration: a source of configuration beside the file was changed.
	KindConfiguration Kind = "configuration"
	// KindDiscovery: backends were found or are no longer, or where they are found fails.
	KindDiscovery Kind = "discovery"
	// KindProxy: the proxy engine has started, ended, a problem, or other certificates.
	KindProxy Kind = "proxy"
	// KindRoutes: a BGP session was established or ended, or VIPs are announced or withdrawn.
	KindRoutes Kind = "routes"
	// KindRole: by VRRP, this balancer takes the VIPs or leaves them to another, or two are active.
	KindRole Kind = "role"
	// KindMembers: another balancer that shares the VIPs is reached or not, or sends flows elsewhere.
	KindMembers Kind = "members"
	// KindStorage: a file that is read only at a restart cannot be written, or can again.
	KindStorage Kind = "storage"
	// KindCapture: a capture of packets has begun or ended; By names its client.
	KindCapture Kind = "capture"
	// KindNotice: anything else that is logged.
	KindNotice Kind = "notice"
)

// Kinds are all of them.
var Kinds = []Kind{KindHealth, KindPath, KindOperation, KindReload, KindConfiguration, KindDiscovery, KindProxy,
	KindRoutes, KindRole, KindMembers, KindStorage, KindCapture, KindNotice}

// Event is an event of the balancer.
type Event struct {
	// ID is unique among the events of all starts of the daemon, and of those of one start its
	// number decides the order.
	ID    string    `json:"id"`
	At    time.Time `json:"at"`
	Level string    `json:"level" enum:"info,warning,error"`
	Kind  Kind      `json:"kind" enum:"health,path,operation,reload,configuration,discovery,proxy,routes,role,members,storage,capture,notice"`
	// Service and Backend name its subject; empty: it is not about a single one.
	Service string `json:"service,omitempty"`
	Backend string `json:"backend,omitempty"`
	// By is the name of the client that requested it; empty: no client did.
	By string `json:"by,omitempty"`
	// Message names the occurrence and its cause, in the log's words.
	Message string `json:"message"`
}

// Log keeps the latest events.
type Log struct {
	start string

	mu sync.Mutex
	// ring has event number n (from 1) at (n-1) modulo its length; last is the number of the latest.
	ring []Event
	last uint64
	// added is closed when there is a new event.
	added chan struct{}
}

// NewLog returns a log that keeps so many events; start identifies this start of the daemon.
func NewLog(kept int, start time.Time) *Log {
	return &Log{start: strconv.FormatInt(start.UnixMicro(), 36), ring: make([]Event, 0, kept),
		added: make(chan struct{})}
}

// add keeps an event, under the next id.
func (l *Log) add(e Event) {
	e.Kind = cmp.Or(e.Kind, KindNotice)
	if len(e.Message) > maxMessage {
		e.Message = strings.ToValidUTF8(e.Message[:maxMessage], "") + "…"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e.ID = l.id(l.last)
	if len(l.ring) < cap(l.ring) {
		l.ring = append(l.ring, e)
	} else {
		l.ring[(l.last-1)%uint64(len(l.ring))] = e
	}
	close(l.added)
	l.added = make(chan struct{})
}

func (l *Log) id(n uint64) string { return fmt.Sprintf("%s-%d", l.start, n) }

// Reader reads events in their order.
type Reader struct {
	log  *Log
	next uint64
	// otherStart: it continues after an event of another start of the daemon.
	otherStart bool
}

// After returns a reader that continues after the event with an id; empty: with the oldest event kept. The events after
// an id of another start of the daemon count as lost.
func (l *Log) After(id string) *Reader {
	if id == "" {
		return &Reader{log: l}
	}
	start, number, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	l.mu.Lock()
	defer l.mu.Unlock()
	if start != l.start || err != nil || n > l.last {
		return &Reader{log: l, otherStart: true}
	}
	return &Reader{log: l, next: n + 1}
}

// Latest returns a reader that begins with the latest n events.
func (l *Log) Latest(n int) *Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Reader{log: l, next: l.last + 1 - uint64(min(n, len(l.ring)))}
}

// Lost reports that a reader has missed events.
type Lost struct {
	// Events is the number of missed events; 0 if it is not known.
	Events uint64 `json:"events,omitempty"`
	// Why is the reason.
	Why string `json:"why"`
}

// Read returns the events that are available, up to some hundred, and those lost before them, if any.
func (r *Reader) Read() (events []Event, lost *Lost) {
	const most = 128
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest := l.last - uint64(len(l.ring)) + 1
	switch {
	case r.otherStart:
		lost = &Lost{Why: "the daemon has started again since; these are the events of this start"}
	case r.next != 0 && r.next < oldest:
		lost = &Lost{Events: oldest - r.next, Why: fmt.Sprintf("only the latest %d events are kept", cap(l.ring))}
	}
	r.otherStart, r.next = false, max(r.next, oldest)
	for ; r.next <= l.last && len(events) < most; r.next++ {
		events = append(events, l.ring[(r.next-1)%uint64(cap(l.ring))])
	}
	return events, lost
}

// Wait returns when there is more to read, or the context has ended.
func (r *Reader) Wait(ctx context.Context) {
	select {
	case <-r.More():
	case <-ctx.Done():
	}
}

// More returns a channel that is closed once there is more to read.
func (r *Reader) More() <-chan struct{} {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.next <= r.log.last {
		return closed
	}
	return r.log.added
}

// closed is a closed channel.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()
