// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"fmt"
	"slices"
	"time"
)

// Feed is a source of configuration that a program keeps as something else is, such as a cluster, and what that program
// says of it. What the source has configured stays in force whatever is said here.
type Feed struct {
	Source string `json:"source"`
	// Services is how many services the source has, and Changed when they last became others.
	Services int       `json:"services"`
	Changed  time.Time `json:"changed,omitzero"`
	// Heard is when the program last said anything; zero: not since the balancer started. Silent: it should have
	// since.
	Heard  time.Time `json:"heard,omitzero"`
	Silent bool      `json:"silent,omitempty"`
	FeedReport
}

// FeedReport is what a program says of the source that it keeps.
type FeedReport struct {
	// Follows is what the source is kept as, such as "the Kubernetes cluster at https://10.0.0.1:6443".
	Follows string `json:"follows,omitempty"`
	// Platform is what the backends of its services are of; empty: hosts.
	Platform Platform `json:"platform,omitempty"`
	// AsOf is of when that was last known; zero: it is known as it is now.
	AsOf time.Time `json:"as_of,omitzero"`
	// Troubles are what does not work, the worst first.
	Troubles []FeedTrouble `json:"troubles,omitempty"`
}

// Platform is what backends are of.
type Platform string

// Kubernetes says that backends are nodes or pods of a cluster. A node takes packets for a Service's address and port,
// and has the address on no interface.
const Kubernetes Platform = "kubernetes"

// TroubleKind says which kind of thing does not work; what is unknown here is shown as it is.
type TroubleKind string

// The kinds of troubles.
const (
	// TroubleUnreached: what the source follows is not reached, or does not say all that there is.
	TroubleUnreached TroubleKind = "unreached"
	// TroubleRight: the program lacks a right there.
	TroubleRight TroubleKind = "right"
	// TroubleUnclaimed: an object waits for a load balancer, and no controller serves its class.
	TroubleUnclaimed TroubleKind = "unclaimed"
	// TroubleKept: the source has what is not there any more, for it vanished otherwise than by being deleted.
	TroubleKept TroubleKind = "kept"
	// TroubleOther is what has no kind of its own.
	TroubleOther TroubleKind = "other"
)

// FeedTrouble is something that does not work.
type FeedTrouble struct {
	Kind TroubleKind `json:"kind"`
	// On is the object that it is about, such as "Service shop/web"; empty: all.
	On      string    `json:"on,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Problem string    `json:"problem"`
	// Remedy says what to do.
	Remedy string `json:"remedy,omitempty"`
}

// SourceAge says how old what a feed follows is, at a time; 0: it is as it is now.
func (f *Feed) SourceAge(now time.Time) time.Duration {
	switch {
	case !f.AsOf.IsZero():
		return max(now.Sub(f.AsOf), 0)
	case f.Silent && !f.Heard.IsZero():
		return max(now.Sub(f.Heard), 0)
	}
	return 0
}

// Lines say what a person should look at, at a time: how old the source is if it is, and each trouble.
func (f *Feed) Lines(now time.Time) (lines []string) {
	if f.Silent {
		lines = append(lines, fmt.Sprintf(
			"source %s: the program that keeps it has said nothing for %s: its services stay as they were",
			f.Source, ageText(now.Sub(f.Heard))))
	}
	for _, t := range f.Troubles {
		lines = append(lines, fmt.Sprintf("source %s: %s%s", f.Source, t.Text(), sinceText(now, t.Since)))
	}
	return lines
}

// Text says what the trouble is about, what it is, and what to do.
func (t FeedTrouble) Text() string {
	text := t.Problem
	if t.On != "" {
		text = t.On + ": " + text
	}
	if t.Remedy != "" {
		text += "; " + t.Remedy
	}
	return text
}

func sinceText(now, since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return fmt.Sprintf(" (for %s)", ageText(now.Sub(since)))
}

func ageText(age time.Duration) string { return max(age, 0).Truncate(time.Second).String() }

// IsOfCluster says whether the backends of a service are nodes or pods of a cluster.
func (s *Status) IsOfCluster(service *Service) bool {
	return slices.ContainsFunc(s.Feeds, func(f Feed) bool {
		return f.Source == service.Owner && f.Platform == Kubernetes
	})
}
