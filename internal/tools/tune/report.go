// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"slices"

	"github.com/jeoul/jeoul/internal/tools/tune/setting"
)

// State is the state of a setting or an item, found or made.
type State string

// The states.
const (
	Good    State = "ok"
	Differs State = "differs"
	// Machines belong to the machine, and this is a namespace of it.
	Machines State = "the machine's"
	// Absent are settings that the kernel, the driver or the host does not have.
	Absent State = "not here"
	// Unread could not be read, for lack of rights mostly.
	Unread State = "not readable"
	// Left are settings that the profile leaves as they are.
	Left State = "left alone"
	// Changed were set by Apply; Failed could not be.
	Changed State = "changed"
	Failed  State = "failed"
	// Advised differ, and are changed only if that is asked for by itself.
	Advised State = "advised"
)

// Setting is one setting of a host, and its wanted value.
type Setting struct {
	Key    setting.Key `json:"key"`
	Now    string      `json:"now"`
	Wanted string      `json:"wanted"`
	State  State       `json:"state"`
	Note   string      `json:"note,omitempty"`
	// write is the value to write.
	write string
}

// Finding is an item held against a host.
type Finding struct {
	Item string `json:"item"`
	// Setting is the item's, as the profile writes it.
	Setting string `json:"setting"`
	State   State  `json:"state"`
	Matters bool   `json:"matters"`
	// Now and Wanted are those of the first setting that differs, or of the first.
	Now    string `json:"now"`
	Wanted string `json:"wanted"`
	Unit   string `json:"unit,omitempty"`
	Why    string `json:"why"`
	Cost   string `json:"cost,omitempty"`
	Source string `json:"source"`
	// Note is the reason why it does not apply, could not be read, or failed.
	Note string `json:"note,omitempty"`
	// Document is experiment 1's value where it is another, DocumentWhy why ours is.
	Document    string `json:"document,omitempty"`
	DocumentWhy string `json:"document_why,omitempty"`
	// Settings are all that the item is about here.
	Settings []Setting `json:"settings,omitempty"`
}

// Deviates reports whether the finding matters and the value deviates.
func (f Finding) Deviates() bool { return f.Matters && (f.State == Differs || f.State == Failed) }

// Report is a host held against a profile.
type Report struct {
	Role       Role         `json:"role"`
	Mode       string       `json:"mode"`
	Host       *Facts       `json:"host"`
	Interfaces []*Interface `json:"interfaces"`
	// Plans are drawn, one for each interface.
	Plans    []string  `json:"plans,omitempty"`
	Findings []Finding `json:"findings"`
	// Notes are for a person to know.
	Notes []string `json:"notes,omitempty"`
}

// Deviations are the findings that matter and are not as they should be.
func (r *Report) Deviations() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return !f.Deviates() })
}

// With are the findings in one of the states.
func (r *Report) With(states ...State) []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool {
		return !slices.Contains(states, f.State)
	})
}

// rank orders the states of an item's settings: the item has the first of them.
var rank = []State{Failed, Changed, Differs, Advised, Unread, Good, Left, Machines, Absent}

// sum gives the finding the state of its settings, and the values of the first
// that has it.
func (f *Finding) sum() {
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
