// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
)

// Harm is the effect of a fault on users.
type Harm string

// The harms, the worst first.
const (
	// Outage: some connections fail altogether.
	Outage Harm = "outage"
	// Loss: packets are lost; those that can be sent again are late.
	Loss Harm = "loss"
	// Slow: answers are late without loss.
	Slow Harm = "slow"
	// Risk: no traffic is hurt yet.
	Risk Harm = "risk"
)

var harms = []Harm{Outage, Loss, Slow, Risk}

// Finding is a fault that was found.
type Finding struct {
	// Kind names the fault; see [Kinds].
	Kind string `json:"kind"`
	Harm Harm   `json:"harm"`
	// Title names the fault and its place, in a sentence.
	Title string `json:"title"`
	// Seen are the figures that it was concluded from.
	Seen []Figure `json:"seen"`
	// Means is the consequence for users.
	Means string `json:"means"`
	// Remedies are the ways to mend it, the best first.
	Remedies []Remedy `json:"cures"`
}

// Figure is a measured value.
type Figure struct {
	// Name is the kernel's own where it has one, such as "TcpExtListenOverflows".
	Name string `json:"name"`
	// On is the object of the measurement: an address, an interface, a core.
	On    string  `json:"on,omitempty"`
	Value float64 `json:"value"`
	// Unit is plural, as in "packets".
	Unit string `json:"unit"`
	// Of is the whole that the value is a part of, in the same unit; 0 if of nothing.
	Of float64 `json:"of,omitempty"`
	// Note is an example or a circumstance.
	Note string `json:"note,omitempty"`
}

// Remedy is a way to mend a fault.
type Remedy struct {
	// Tune is the item of `jeoul tune` that does it, such as "somaxconn"; empty if none
	// does.
	Tune string `json:"tune,omitempty"`
	// Do is the advice, in a sentence.
	Do string `json:"do"`
}

// sortFindings puts the worst first. Within one harm a cause comes before its possible consequences, and then the order
// of [Kinds] decides.
func sortFindings(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int { return rank(a.Kind) - rank(b.Kind) })
}

// rank is a kind's place in the order of harm; kinds that are but a sign of something else come last.
func rank(id string) int {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.id == id })
	k := kinds[i]
	r := slices.Index(harms, k.harm)*len(kinds) + i
	if k.sign {
		r += len(harms) * len(kinds)
	}
	return r
}
