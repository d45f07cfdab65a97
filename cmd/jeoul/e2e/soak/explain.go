// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"net/netip"
	"slices"
	"time"
)

// The only reasons for which a connection may break. All times are of one clock.

// Reason is the reason why a connection broke.
type Reason string

const (
	// OwnBackend: between the connection's last answer and its end, its backend had a fault, and it was opened before
	// the backend was back. (A drained or reweighted backend keeps its connections.)
	OwnBackend Reason = "its backend was taken"
	// TooYoung: the connection had been proven for less than [HandoverAge] when the router's routes changed, between
	// its last answer and its end. Flows are handed over some half a second after they are proven.
	TooYoung Reason = "younger than a second when the router's next hops changed"
	// Overlapped: the router's routes changed, between the connection's last answer and its end, while faults of two
	// balancers or pairs of them went on at once. Some balancer had no uninterrupted [HandoverAge], since the
	// connection was proven, or since that balancer had lost its flows, in which no fault kept it from the others'
	// messages.
	Overlapped Reason = "two faults at once kept it from being told of"
	// Disagreed: the service computes its backend (maglev, sh). Two balancers had different tables of it while the
	// connection was being opened, as they have for a moment in each change, and the router's routes changed between
	// the connection's last answer and its end.
	Disagreed Reason = "begun while balancers had different tables"
	// Unexplained is any other reason, and fails a soak.
	Unexplained Reason = "unexplained"
)

// HandoverAge is the time since a connection was proven after which all members have it.
const HandoverAge = time.Second

// Span is a period of time; To is zero while it goes on.
type Span struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to,omitzero"`
}

// Overlaps reports whether two periods have a moment in common.
func (s Span) Overlaps(o Span) bool {
	return (s.To.IsZero() || !o.From.After(s.To)) && (o.To.IsZero() || !s.From.After(o.To))
}

// Happened is a fault that was executed.
type Happened struct {
	Fault
	// Span is the period from before the fault until everything was seen to be normal again.
	Span
	// Restored is the time when the fault was undone, before any effect of that had been seen; zero while it was not.
	Restored time.Time `json:"mended,omitzero"`
	// Lost is the time when the balancer had lost its flows; zero where it did not.
	Lost time.Time `json:"lost,omitzero"`
}

// RouteChange is a change of the balancers that the router sends to: it happened after Before, and was seen at Seen.
type RouteChange struct{ Before, Seen time.Time }

// Timeline is the course of a soak: faults, changes of the router's next hops, and differences of tables.
type Timeline struct {
	Balancers int
	Faults    []*Happened
	NextHops  []RouteChange
	// Differed holds, by service, the periods when not all balancers that were asked were known to have the same table.
	Differed map[string][]Span
}

// Connection is a connection that broke.
type Connection struct {
	Service  string
	Client   netip.AddrPort
	Computes bool // its scheduler computes the backend
	Backend  int
	// Opened is the time when its first SYN was sent, and Proven the time when its first answer came. Balancers hand a
	// flow over once the client has acknowledged its backend's SYN, at the latest at Proven. That may be seconds after
	// Opened: a SYN to a removed backend is retransmitted, and the table at that time decides.
	Opened, Proven time.Time
	// Answered is the time when the last answer came, and Broke the time when the break was noticed.
	Answered, Broke time.Time
	Error           string
}

// Explain returns the reason why a connection broke.
func (t *Timeline) Explain(c Connection) Reason {
	end := Span{c.Answered, c.Broke}
	for _, f := range t.Faults {
		if f.Kind.Takes() && f.Backend == c.Backend && f.Overlaps(end) &&
			(f.Restored.IsZero() || c.Opened.Before(f.Restored)) {
			return OwnBackend
		}
	}
	for _, change := range t.NextHops {
		if !end.Overlaps(Span{change.Before, change.Seen}) {
			continue
		}
		switch {
		case change.Before.Sub(c.Proven) < HandoverAge:
			return TooYoung
		case t.overlapped(c, change):
			return Overlapped
		case c.Computes && slices.ContainsFunc(t.Differed[c.Service], Span{c.Opened, c.Proven}.Overlaps):
			return Disagreed
		}
	}
	return Unexplained
}

// overlapped checks the condition of [Overlapped].
func (t *Timeline) overlapped(c Connection, change RouteChange) bool {
	for n := range t.Balancers {
		since := c.Proven
		for _, f := range t.Faults {
			if slices.Contains(f.Balancers, n) && f.Lost.After(since) && f.Lost.Before(change.Seen) {
				since = f.Lost
			}
		}
		kept := t.keeping(n, Span{since, change.Seen})
		if !withoutBreak(kept, since, change.Before) && t.twoAtOnce(Span{since, change.Seen}) {
			return true
		}
	}
	return false
}

// keeping returns the periods within a span in which a fault kept a balancer from the messages of others.
func (t *Timeline) keeping(n int, within Span) (kept []Span) {
	for _, f := range t.Faults {
		if slices.Contains(f.Balancers, n) && f.Kind.OfBalancer() && f.Overlaps(within) {
			kept = append(kept, f.Span)
		}
	}
	slices.SortFunc(kept, func(a, b Span) int { return a.From.Compare(b.From) })
	return kept
}

// withoutBreak reports whether there was an uninterrupted [HandoverAge] without the given periods, which are in order.
func withoutBreak(kept []Span, from, to time.Time) bool {
	for _, s := range kept {
		if s.From.Sub(from) >= HandoverAge {
			return true
		}
		if s.To.IsZero() {
			return false
		}
		if s.To.After(from) {
			from = s.To
		}
	}
	return to.Sub(from) >= HandoverAge
}

// twoAtOnce reports whether two faults of balancers went on at once within a span.
func (t *Timeline) twoAtOnce(within Span) bool {
	var on []*Happened
	for _, f := range t.Faults {
		if f.Kind.OfBalancer() && f.Overlaps(within) {
			on = append(on, f)
		}
	}
	for i, a := range on {
		for _, b := range on[:i] {
			if a.Overlaps(b.Span) {
				return true
			}
		}
	}
	return false
}

// ExplainRefused reports whether a new connection may have failed while it was opened, in the given period: a fault
// went on, or the router's routes changed.
func (t *Timeline) ExplainRefused(opening Span) bool {
	return slices.ContainsFunc(t.Faults, func(f *Happened) bool {
		return f.Kind != Reweigh && f.Kind != UnknownSender && f.Kind != BackendDrain && f.Overlaps(opening)
	}) ||
		slices.ContainsFunc(t.NextHops, func(w RouteChange) bool { return opening.Overlaps(Span{w.Before, w.Seen}) })
}
