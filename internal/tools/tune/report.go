// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"slices"

	"github.com/jeoul/jeoul/internal/tools/tune/setting"
)

// State is the state of a setting or an item, as found or after a change.
type State string

// The states.
const (
	Good    State = "ok"
	Differs State = "differs"
	// Machines means that the setting belongs to the machine, and this is one of its namespaces.
	Machines State = "the machine's"
	// Absent means that the kernel, the driver or the host does not have the setting.
	Absent State = "not here"
	// Unread means that the setting could not be read, mostly for lack of rights.
	Unread State = "not readable"
	// Left means that the profile leaves the setting unchanged.
	Left State = "left alone"
	// Changed means that Apply set it; Failed, that Apply could not.
	Changed State = "changed"
	Failed  State = "failed"
	// Advised means that the setting differs, and is changed only on explicit request.
	Advised State = "advised"
)

// Setting is one setting of a host, with its wanted value.
type Setting struct {
	Key    setting.Key `json:"key"`
	Now    string      `json:"now"`
	Wanted string      `json:"wanted"`
	State  State       `json:"state"`
	Note   string      `json:"note,omitempty"`
	// write is the value to write.
	write string
}

// Finding is the comparison of a host with an item.
type Finding struct {
	Item string `json:"item"`
	// Setting is the item's setting, as written in the profile.
	Setting string `json:"setting"`
	State   State  `json:"state"`
	Matters bool   `json:"matters"`
	// Now and Wanted are the values of the first setting that differs, or else of the first setting.
	Now    string `json:"now"`
	Wanted string `json:"wanted"`
	Unit   string `json:"unit,omitempty"`
	Why    string `json:"why"`
	Cost   string `json:"cost,omitempty"`
	Source string `json:"source"`
	// Note is the reason why the item does not apply, could not be read, or failed.
	Note string `json:"note,omitempty"`
	// Document is experiment 1's value if it differs, and DocumentWhy the reason for the profile's.
	Document    string `json:"document,omitempty"`
	DocumentWhy string `json:"document_why,omitempty"`
	// Settings are all of the item's settings on this host.
	Settings []Setting `json:"settings,omitempty"`
}

// Deviates reports whether the finding matters and the value deviates.
func (f Finding) Deviates() bool { return f.Matters && (f.State == Differs || f.State == Failed) }

// Report is the comparison of a host with a profile.
type Report struct {
	Role       Role         `json:"role"`
	Mode       string       `json:"mode"`
	Host       *Facts       `json:"host"`
	Interfaces []*Interface `json:"interfaces"`
	// Plans are drawings of the core plans, one for each interface.
	Plans    []string  `json:"plans,omitempty"`
	Findings []Finding `json:"findings"`
	// Notes are remarks for the operator.
	Notes []string `json:"notes,omitempty"`
}

// Deviations returns the findings that matter and whose value deviates.
func (r *Report) Deviations() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return !f.Deviates() })
}

// With returns the findings in one of the states.
func (r *Report) With(states ...State) []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool {
		return !slices.Contains(states, f.State)
	})
}

// rank orders the states of an item's settings. The item has the first one that occurs.
var rank = []State{Failed, Changed, Differs, Advised, Unread, Good, Left, Machines, Absent}

// summarize sets the finding's state from its settings, and its values from the first setting in that state.
func (f *Finding) summarize() {
	for _, state := range rank {
		for _, s := range f.Settings {
			if s.State == state {
				f.State, f.Now, f.Wanted = state, s.Now, s.Wanted
				if s.Note != "" {
					f.Note = s.Note
				}
				return
			}
		}
	}
}
