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

// Report has the findings of a look at a host.
type Report struct {
	Schema int    `json:"schema"`
	Host   string `json:"host"`
	// Interface is the interface that was asked about; empty for all.
	Interface string    `json:"interface,omitempty"`
	Started   time.Time `json:"started"`
	// Seconds is how long traffic was watched.
	Seconds float64 `json:"seconds"`
	// Findings are ordered by harm; empty where nothing is wrong that can be seen
	// from this host.
	Findings []rules.Finding `json:"findings"`
	// Drops are all that the kernel dropped meanwhile, by reason, harmless ones too;
	// the most first. Null if the kernel could not be asked.
	Drops []drops.Drop `json:"drops"`
	// Unread are the sources that could not be read, and so not evaluated.
	Unread []Gap `json:"unread"`
	// Looked are the sources that were examined, by name.
	Looked []string `json:"looked"`
	// Evidence is all that was seen, from which the findings follow.
	Evidence *evidence.Evidence `json:"evidence,omitempty"`
}

// Gap is a source that could not be read.
type Gap struct {
	Source string `json:"source"`
	// Reason is why, and Remedy the remedy.
	Reason string `json:"reason"`
	Remedy string `json:"cure,omitempty"`
}
