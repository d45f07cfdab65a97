// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/results"
)

// saturationNote begins the note that says how a trial's saturated part was told.
const saturationNote = "saturated: "

// invalidSheet lists every point that has invalid trials, with the reason. It
// is nil if there is none.
func invalidSheet(sections []*section) *sheet {
	sh := &sheet{
		Title:   "Points that could not be measured",
		Lead:    "These trials were planned, and are in no figure, table or chart above.",
		Columns: []column{{Title: "Subject"}, {Title: "Load"}, {Title: "Parameters"}, {Title: "Repeats"}, {Title: "Reason"}},
	}
	for _, s := range sections {
		sh.group(invalidLines(s))
	}
	return sh.orNil()
}

// invalidLines has a line for each point and reason.
func invalidLines(s *section) []line {
	var lines []line
	at := map[string]int{}
	for _, t := range s.trials {
		if t.Valid {
			continue
		}
		p := toParams(t.Params)
		reason := cmp.Or(strings.Join(cleanAll(t.Notes), "; "), "no reason was recorded")
		key := fmt.Sprintf("%q %q %q", t.Subject, p.key(), reason)
		if i, ok := at[key]; ok {
			lines[i].Cells[3] += fmt.Sprintf(", %d", t.Repeat)
			continue
		}
		at[key] = len(lines)
		lines = append(lines, line{Cells: []string{
			clean(t.Subject), clean(s.Load), cmp.Or(s.changing(p), missing), fmt.Sprint(t.Repeat), reason,
		}})
	}
	return lines
}

// changing describes the parameters that are not the same for the whole load.
func (s *section) changing(p params) string {
	return p.only(slices.Concat(s.Varying, s.Own)).text()
}

// remark is a note and the valid trials that have it.
type remark struct {
	text   string
	trials []results.Trial
}

// remarks collects the notes of a load's valid trials.
func (s *section) remarks() []*remark {
	var all []*remark
	at := map[string]*remark{}
	for _, t := range s.trials {
		for _, n := range cleanAll(t.Notes) {
			if !t.Valid {
				break
			}
			if at[n] == nil {
				at[n] = &remark{text: n}
				all = append(all, at[n])
			}
			at[n].trials = append(at[n].trials, t)
		}
	}
	return all
}

// remarkSheet lists what was noted of valid trials, but for how the saturated
// part was told: every trial has such a note.
func remarkSheet(sections []*section) *sheet {
	sh := &sheet{
		Title:   "Notes on valid trials",
		Lead:    "These trials count; a reader should know this of them.",
		Columns: []column{{Title: "Load"}, {Title: "Trials"}, {Title: "Note"}},
	}
	for _, s := range sections {
		var lines []line
		for _, r := range s.remarks() {
			if !strings.HasPrefix(r.text, saturationNote) {
				lines = append(lines, line{Cells: []string{clean(s.Load), s.where(r), r.text}})
			}
		}
		sh.group(lines)
	}
	return sh.orNil()
}

// evidenceSheet lists how the saturated part of each trial was told.
func evidenceSheet(sections []*section) *sheet {
	sh := &sheet{
		Title:   "How the saturated part was told",
		Lead:    "The figures behind the word, trial by trial.",
		Columns: []column{{Title: "Load"}, {Title: "Trial"}, {Title: "Saturated"}},
		Aside:   true,
	}
	for _, s := range sections {
		var lines []line
		for _, r := range s.remarks() {
			if strings.HasPrefix(r.text, saturationNote) {
				lines = append(lines, line{Cells: []string{clean(s.Load), s.where(r), strings.TrimPrefix(r.text, saturationNote)}})
			}
		}
		sh.group(lines)
	}
	return sh.orNil()
}

// namedTrials is how many trials a note names before it only counts them.
const namedTrials = 4

// where says which trials have a remark.
func (s *section) where(r *remark) string {
	valid := 0
	for _, t := range s.trials {
		if t.Valid {
			valid++
		}
	}
	if len(r.trials) == valid && valid > 1 {
		return fmt.Sprintf("all %d", valid)
	}
	var names []string
	for i, t := range r.trials {
		if i == namedTrials {
			names = append(names, fmt.Sprintf("%d more", len(r.trials)-i))
			break
		}
		name := clean(t.Subject)
		if words := s.changing(toParams(t.Params)); words != "" {
			name += " · " + words
		}
		names = append(names, fmt.Sprintf("%s, repeat %d", name, t.Repeat))
	}
	return strings.Join(names, "; ")
}

// group adds lines as a group, if there are any.
func (sh *sheet) group(lines []line) {
	if len(lines) > 0 {
		sh.Groups = append(sh.Groups, lines)
	}
}

// orNil returns nil for a sheet without lines.
func (sh *sheet) orNil() *sheet {
	if sh.empty() {
		return nil
	}
	return sh
}

// cleanAll cleans texts and leaves out the empty ones.
func cleanAll(texts []string) []string {
	var out []string
	for _, t := range texts {
		if t = strings.TrimSpace(clean(t)); t != "" {
			out = append(out, t)
		}
	}
	return out
}
