// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// saturationNote begins the note that says how a trial's saturated part was told.
const saturationNote = "saturated: "

// invalidSheet lists every point that has invalid trials, with the reason. It
// is nil if there is none.
func invalidSheet(sections []*section) *sheet {
	sh := &sheet{
		Title: "Points that could not be measured",
		Lead:  "These trials were planned, and are in no figure, table or chart above.",
		Columns: []column{{Title: "Subject"}, {Title: "Load"}, {Title: "Parameters"}, {Title: "Repeats"},
			{Title: "Reason"}},
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
		reason := cmp.Or(strings.Join(s.reasons(t), "; "), "no reason was recorded")
		key := fmt.Sprintf("%q %q %q", t.Subject, p.key(), reason)
		if i, ok := at[key]; ok {
			lines[i].Cells[3] += fmt.Sprintf(", %d", t.Repeat)
			continue
		}
		at[key] = len(lines)
		lines = append(lines, line{Cells: []string{
			wording.Clean(t.Subject), s.title(), cmp.Or(s.changing(p), wording.Missing), fmt.Sprint(t.Repeat), reason,
		}})
	}
	return lines
}

// reasons returns the notes of an invalid trial but for those that valid ones
// have as well, which cannot be why it is not.
func (s *section) reasons(invalid results.Trial) []string {
	return slices.DeleteFunc(wording.CleanAll(invalid.Notes), func(note string) bool {
		return strings.HasPrefix(note, saturationNote) || slices.ContainsFunc(s.trials, func(t results.Trial) bool {
			return t.Valid && slices.Contains(wording.CleanAll(t.Notes), note)
		})
	})
}

// changing describes the parameters that are not the same for the whole load.
func (s *section) changing(p params) string {
	return p.only(slices.Concat(s.Varying, s.Own)).text()
}

// remark is a note, and the valid trials that have it or one that differs from
// it in its numbers only.
type remark struct {
	texts  []string
	trials []results.Trial
}

// noteNumber is what may differ between notes that say the same.
var noteNumber = regexp.MustCompile(`\d+(?:\.\d+)?`)

// remarks collects the notes of a load's valid trials. With merge, those that
// differ in their numbers only become one.
func (s *section) remarks(merge bool) []*remark {
	var all []*remark
	at := map[string]*remark{}
	for _, t := range s.trials {
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

// parsed reads what noteNumber matched, which cannot fail; a number too long
// for it is infinite.
func parsed(s string) float64 {
	v, _ := strconv.ParseFloat(s, 64)
	return v
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
		for _, r := range s.remarks(true) {
			if !strings.HasPrefix(r.text(), saturationNote) {
				lines = append(lines, line{Cells: []string{s.title(), s.where(r), r.text()}})
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
		for _, r := range s.remarks(false) {
			if told, ok := strings.CutPrefix(r.text(), saturationNote); ok {
				lines = append(lines, line{Cells: []string{s.title(), s.where(r), told}})
			}
		}
		sh.group(lines)
	}
	return sh.orNil()
}

// where says which trials have a remark: all, all of a subject, or which
// repeats of which points.
func (s *section) where(r *remark) string {
	if n := s.valid(""); len(r.trials) == n && n > 1 {
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
		case len(of) == s.valid(subject) && len(of) > 1:
			parts = append(parts, fmt.Sprintf("%s, all %d", wording.Clean(subject), len(of)))
		default:
			parts = append(parts, s.pointsOf(of)...)
		}
	}
	return strings.Join(parts, "; ")
}

// valid counts the valid trials of a subject, or of all.
func (s *section) valid(subject string) int {
	n := 0
	for _, t := range s.trials {
		if t.Valid && (subject == "" || t.Subject == subject) {
			n++
		}
	}
	return n
}

// pointsOf names the points of a subject's trials, with the repeats.
func (s *section) pointsOf(trials []results.Trial) []string {
	var names, repeats []string
	for _, t := range trials {
		name := wording.Clean(t.Subject)
		if words := s.changing(toParams(t.Params)); words != "" {
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
