// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"time"

	"github.com/jeoul/jeoul/internal/host/drops"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
	"github.com/jeoul/jeoul/internal/tools/doctor/rules"
)

// Schema is the version of [Report] as JSON.
const Schema = 1

// Report has the findings of an examination of a host.
type Report struct {
	Schema int    `json:"schema"`
	Host   string `json:"host"`
	// Interface is the requested interface; empty for all.
	Interface string    `json:"interface,omitempty"`
	Started   time.Time `json:"started"`
	// Seconds is the time during which traffic was watched.
	Seconds float64 `json:"seconds"`
	// Findings are ordered by harm. They are empty if no fault is visible from this host.
	Findings []rules.Finding `json:"findings"`
	// Drops are all packets that the kernel dropped during the examination, by reason and including harmless ones, in
	// descending order. Null if the kernel could not be traced.
	Drops []drops.Drop `json:"drops"`
	// Unread are the sources that could not be read, and are therefore not evaluated.
	Unread []Gap `json:"unread"`
	// Looked are the names of the sources that were examined.
	Looked []string `json:"looked"`
	// Evidence is everything that was observed, from which the findings follow.
	Evidence *evidence.Evidence `json:"evidence,omitempty"`
}

// Gap is a source that could not be read.
type Gap struct {
	Source string `json:"source"`
	// Reason is the error, and Remedy the remedy.
	Reason string `json:"reason"`
	Remedy string `json:"cure,omitempty"`
}
