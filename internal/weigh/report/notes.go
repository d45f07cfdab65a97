// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// saturationNote begins the note on how a trial's saturated part was determined.
const saturationNote = "saturated: "

// invalidSheet lists every point that has invalid trials, with the reason. It
// is nil if there is none.
func invalidSheet(sections []*model.Section) *model.Sheet {
	sh := &model.Sheet{
		Title: "Points that could not be measured",
		Lead:  "These trials were planned, and are in no figure, table or chart above.",
		Columns: []model.Column{{Title: "Subject"}, {Title: "Load"}, {Title: "Parameters"}, {Title: "Repeats"},
			{Title: "Reason"}},
	}
	for _, s := range sections {
		sh.Group(invalidLines(s))
	}
	return sh.OrNil()
}

// invalidLines has a line for each point and reason.
func invalidLines(s *model.Section) []model.Line {
	var lines []model.Line
	at := map[string]int{}
	for _, t := range s.Trials {
		if t.Valid {
			continue
		}
		p := model.ToParams(t.Params)
		reason := cmp.Or(strings.Join(reasons(s, t), "; "), "no reason was recorded")
		key := fmt.Sprintf("%q %q %q", t.Subject, p.Key(), reason)
		if i, ok := at[key]; ok {
			lines[i].Cells[3] += fmt.Sprintf(", %d", t.Repeat)
			continue
		}
		at[key] = len(lines)
		lines = append(lines, model.Line{Cells: []string{
			wording.Clean(t.Subject), s.Title(), cmp.Or(changing(s, p), wording.Missing), fmt.Sprint(t.Repeat), reason,
		}})
	}
	return lines
}

// reasons returns the notes of an invalid trial without the notes that valid trials have as well, which cannot be the
// reason.
func reasons(s *model.Section, invalid results.Trial) []string {
	return slices.DeleteFunc(wording.CleanAll(invalid.Notes), func(note string) bool {
		return strings.HasPrefix(note, saturationNote) || slices.ContainsFunc(s.Trials, func(t results.Trial) bool {
			return t.Valid && slices.Contains(wording.CleanAll(t.Notes), note)
		})
	})
}

// changing describes the parameters that vary within the load.
func changing(s *model.Section, p model.Params) string {
	return p.Only(slices.Concat(s.Varying, s.Own)).Text()
}

// remark is a note, and the valid trials that have it or a note that differs from it only in its numbers.
type remark struct {
	texts  []string
	trials []results.Trial
}

// noteNumber matches numbers, in which notes of the same words may differ.
var noteNumber = regexp.MustCompile(`\d+(?:\.\d+)?`)

// remarks collects the notes of a load's valid trials. With merge, notes that differ only in their numbers become one.
func remarks(s *model.Section, merge bool) []*remark {
	var all []*remark
	at := map[string]*remark{}
	for _, t := range s.Trials {
		if !t.Valid {
			continue
		}
		for _, n := range wording.CleanAll(t.Notes) {
			key := n
			if merge {
				key = noteNumber.ReplaceAllString(n, "#")
			}
			if at[key] == nil {
				at[key] = &remark{}
				all = append(all, at[key])
			}
			at[key].texts = append(at[key].texts, n)
			at[key].trials = append(at[key].trials, t)
		}
	}
	return all
}

// text returns the note, with a range for every number that differs.
func (r *remark) text() string {
	i := -1
	return noteNumber.ReplaceAllStringFunc(r.texts[0], func(first string) string {
		i++
		low, high := first, first
		for _, t := range r.texts {
			n := noteNumber.FindAllString(t, -1)[i]
			if parsed(n) < parsed(low) {
				low = n
			}
			if parsed(n) > parsed(high) {
				high = n
			}
		}
		if low == high {
			return first
		}
		return low + "–" + high
	})
}

// parsed parses a text that noteNumber matched, which cannot fail; a number too large for float64 is infinite.
func parsed(s string) float64 {
	v, _ := strconv.ParseFloat(s, 64)
	return v
}

// remarkSheet lists the notes on valid trials, without the notes on the saturated part: every trial has such a note.
func remarkSheet(sections []*model.Section) *model.Sheet {
	sh := &model.Sheet{
		Title:   "Notes on valid trials",
		Lead:    "These trials count; a reader should know this of them.",
		Columns: []model.Column{{Title: "Load"}, {Title: "Trials"}, {Title: "Note"}},
	}
	for _, s := range sections {
		var lines []model.Line
		for _, r := range remarks(s, true) {
			if !strings.HasPrefix(r.text(), saturationNote) {
				lines = append(lines, model.Line{Cells: []string{s.Title(), where(s, r), r.text()}})
			}
		}
		sh.Group(lines)
	}
	return sh.OrNil()
}

// evidenceSheet lists how the saturated part of each trial was determined.
func evidenceSheet(sections []*model.Section) *model.Sheet {
	sh := &model.Sheet{
		Title:     "How the saturated part was told",
		Lead:      "The figures behind the word, trial by trial.",
		Columns:   []model.Column{{Title: "Load"}, {Title: "Trial"}, {Title: "Saturated"}},
		Secondary: true,
	}
	for _, s := range sections {
		var lines []model.Line
		for _, r := range remarks(s, false) {
			if reason, ok := strings.CutPrefix(r.text(), saturationNote); ok {
				lines = append(lines, model.Line{Cells: []string{s.Title(), where(s, r), reason}})
			}
		}
		sh.Group(lines)
	}
	return sh.OrNil()
}

// where names the trials that have a remark: all, all of a subject, or certain repeats of certain points.
func where(s *model.Section, r *remark) string {
	if n := valid(s, ""); len(r.trials) == n && n > 1 {
		return fmt.Sprintf("all %d", n)
	}
	var parts []string
	for _, subject := range s.Subjects {
		var of []results.Trial
		for _, t := range r.trials {
			if t.Subject == subject {
				of = append(of, t)
			}
		}
		switch {
		case len(of) == 0:
		case len(of) == valid(s, subject) && len(of) > 1:
			parts = append(parts, fmt.Sprintf("%s, all %d", wording.Clean(subject), len(of)))
		default:
			parts = append(parts, pointsOf(s, of)...)
		}
	}
	return strings.Join(parts, "; ")
}

// valid counts the valid trials of a subject, or of all.
func valid(s *model.Section, subject string) int {
	n := 0
	for _, t := range s.Trials {
		if t.Valid && (subject == "" || t.Subject == subject) {
			n++
		}
	}
	return n
}

// pointsOf names the points of a subject's trials, with the repeats.
func pointsOf(s *model.Section, trials []results.Trial) []string {
	var names, repeats []string
	for _, t := range trials {
		name := wording.Clean(t.Subject)
		if words := changing(s, model.ToParams(t.Params)); words != "" {
			name += " · " + words
		}
		if i := slices.Index(names, name); i >= 0 {
			repeats[i] += fmt.Sprintf(", %d", t.Repeat)
			continue
		}
		names, repeats = append(names, name), append(repeats, fmt.Sprint(t.Repeat))
	}
	for i := range names {
		names[i] += ", repeat " + repeats[i]
	}
	return names
}
