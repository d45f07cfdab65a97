// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Feed is a source of configuration that a program synchronises with another system, such as a cluster, and the
// program's report on it. The source's configuration stays in force whatever the report says.
type Feed struct {
	Source string `json:"source"`
	// Services is the number of the source's services, and Changed the time of their last change.
	Services int       `json:"services"`
	Changed  time.Time `json:"changed,omitzero"`
	// Heard is the time of the program's last report; zero: none since the balancer started. Silent: its next report is
	// overdue.
	Heard  time.Time `json:"heard,omitzero"`
	Silent bool      `json:"silent,omitempty"`
	FeedReport
}

// FeedReport is the report of a program on the source that it keeps.
type FeedReport struct {
	// Follows names the system that the source is synchronised with, such as "the Kubernetes cluster at
	// https://10.0.0.1:6443".
	Follows string `json:"follows,omitempty"`
	// Platform is the kind of hosts that the backends of its services are; empty: plain ones.
	Platform Platform `json:"platform,omitempty"`
	// AsOf is the time of the last known state of the followed system; zero: the source is current.
	AsOf time.Time `json:"as_of,omitzero"`
	// Problems are the faults, the worst first.
	Problems []FeedProblem `json:"troubles,omitempty"`
}

// Platform is the kind of hosts that backends are.
type Platform string

// Kubernetes says that backends are nodes or pods of a cluster. A node takes packets for a Service's address and port,
// and has the address on no interface.
const Kubernetes Platform = "kubernetes"

// ProblemKind is the kind of a fault. A kind that is unknown here is shown as it is.
type ProblemKind string

// The kinds of problems.
const (
	// ProblemUnreached: the followed system is not reached, or its answer is incomplete.
	ProblemUnreached ProblemKind = "unreached"
	// ProblemRight: the program lacks a right there.
	ProblemRight ProblemKind = "right"
	// ProblemUnclaimed: an object waits for a load balancer, and no controller serves its class.
	ProblemUnclaimed ProblemKind = "unclaimed"
	// ProblemKept: the source keeps an object that has vanished without having been
	// deleted.
	ProblemKept ProblemKind = "kept"
	// ProblemOther is a fault without a kind of its own.
	ProblemOther ProblemKind = "other"
)

// FeedProblem is a problem of a feed.
type FeedProblem struct {
	Kind ProblemKind `json:"kind"`
	// On is the object concerned, such as "Service shop/web"; empty: all.
	On      string    `json:"on,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Problem string    `json:"problem"`
	// Remedy says how to solve it.
	Remedy string `json:"remedy,omitempty"`
}

// SourceAge returns the age of the feed's state of its system at a time; 0: it is current.
func (f *Feed) SourceAge(now time.Time) time.Duration {
	switch {
	case !f.AsOf.IsZero():
		return max(now.Sub(f.AsOf), 0)
	case f.Silent && !f.Heard.IsZero():
		return max(now.Sub(f.Heard), 0)
	}
	return 0
}

// Lines returns the lines that need a person's attention, at a time: that the program is silent, and each fault.
func (f *Feed) Lines(now time.Time) (lines []string) {
	if f.Silent {
		lines = append(lines, fmt.Sprintf(
			"source %s: the program that keeps it has said nothing for %s: its services stay as they were",
			f.Source, ageText(now.Sub(f.Heard))))
	}
	for _, t := range f.Problems {
		lines = append(lines, fmt.Sprintf("source %s: %s%s", f.Source, t.Text(), sinceText(now, t.Since)))
	}
	return lines
}

// Text names the object, the fault and the remedy.
func (t FeedProblem) Text() string {
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

// IsOfCluster reports whether the backends of a service are nodes or pods of a cluster.
func (s *Status) IsOfCluster(service *Service) bool {
	return slices.ContainsFunc(s.Feeds, func(f Feed) bool {
		return f.Source == service.Owner && f.Platform == Kubernetes
	})
}

// NameObjects sets the object of its cluster that each service is for.
func (s *Status) NameObjects() {
	clusters := map[string]bool{}
	for i := range s.Feeds {
		if s.Feeds[i].Platform == Kubernetes {
			clusters[s.Feeds[i].Source] = true
		}
	}
	for i := range s.Services {
		if service := &s.Services[i]; clusters[service.Owner] {
			service.Object = objectOf(service.Name)
		}
	}
}

// objectOf returns the object of a cluster that a service of that name is for. Its name begins with NAMESPACE:NAME:,
// unless it was too long, and is cut before that.
func objectOf(name string) string {
	if parts := strings.Split(name, ":"); len(parts) > 2 {
		return parts[0] + "/" + parts[1]
	}
	return ""
}

// OwnerText names the source that has the service, and the object of a cluster that it is for.
func (s *Service) OwnerText() string {
	if s.Object == "" {
		return s.Owner
	}
	return s.Owner + ": " + s.Object
}
