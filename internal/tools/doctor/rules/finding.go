// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
)

// Harm is the effect of a fault on users.
type Harm string

// The harms, the worst first.
const (
	// Outage means that some connections fail altogether.
	Outage Harm = "outage"
	// Loss means that packets are lost. Retransmitted ones arrive late.
	Loss Harm = "loss"
	// Slow means that answers are late without loss.
	Slow Harm = "slow"
	// Risk means that no traffic is affected yet.
	Risk Harm = "risk"
)

var harms = []Harm{Outage, Loss, Slow, Risk}

// Finding is a fault that was found.
type Finding struct {
	// Kind is the kind of fault; see [Kinds].
	Kind string `json:"kind"`
	Harm Harm   `json:"harm"`
	// Title is a sentence that names the fault and its place.
	Title string `json:"title"`
	// Seen are the figures that the finding is based on.
	Seen []Figure `json:"seen"`
	// Means is the consequence for users.
	Means string `json:"means"`
	// Remedies are the ways to repair the fault, best first.
	Remedies []Remedy `json:"cures"`
}

// Figure is a measured value.
type Figure struct {
	// Name is the kernel's own name where there is one, such as "TcpExtListenOverflows".
	Name string `json:"name"`
	// On is the object of the measurement: an address, an interface, a core.
	On    string  `json:"on,omitempty"`
	Value float64 `json:"value"`
	// Unit is plural, as in "packets".
	Unit string `json:"unit"`
	// Of is the total that the value is a part of, in the same unit; 0 if there is none.
	Of float64 `json:"of,omitempty"`
	// Note is an example or a circumstance.
	Note string `json:"note,omitempty"`
}

// Remedy is a way to repair a fault.
type Remedy struct {
	// Tune is the item of `jeoul tune` that applies the remedy, such as "somaxconn"; empty if there is none.
	Tune string `json:"tune,omitempty"`
	// Do is the advice, in a sentence.
	Do string `json:"do"`
}

// sortFindings puts the worst first. Within one harm, a cause precedes its possible consequences, and otherwise the
// order of [Kinds] decides.
func sortFindings(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int { return rank(a.Kind) - rank(b.Kind) })
}

// rank is the position of a kind in the order of harm. Kinds that are only a sign of another fault come last.
func rank(id string) int {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.id == id })
	k := kinds[i]
	r := slices.Index(harms, k.harm)*len(kinds) + i
	if k.secondary {
		r += len(harms) * len(kinds)
	}
	return r
}
