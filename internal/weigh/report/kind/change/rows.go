// SPDX-License-Identifier: Apache-2.0

package change

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// changeRow is a subject with its parameters, and its point of each event.
type changeRow struct {
	label, subject string
	at             map[string]*model.Point
	// cannot holds the events that the subject does not support.
	cannot map[string]bool
	// failed are the events that failed, in one repeat or in all. The trial ended there, so the row has not all losses.
	failed []string
}

// failure states in which events a subject failed.
func (r *changeRow) failure() string {
	var events []string
	for _, event := range r.failed {
		events = append(events, model.EventText(event))
	}
	return fmt.Sprintf("%s did not come through every event (%s).", wording.Clean(r.label),
		strings.Join(model.AtMost(events, model.MaxListed), ", "))
}

// supported reports whether the subject of an invalid trial supports the trial's event, and so failed in it.
func supported(t results.Trial) bool {
	return !slices.ContainsFunc(t.Notes, func(note string) bool { return strings.Contains(note, results.NotPossible) })
}

// changeRows returns the rows in the order of the tables, and the events in the order of their trials, without
// EventShare.
func changeRows(s *model.Section) (rows []*changeRow, events []string) {
	row := func(p *model.Point) *changeRow {
		label := s.Label(p, true)
		for _, r := range rows {
			if r.label == label {
				return r
			}
		}
		rows = append(rows, &changeRow{label: label, subject: p.Subject, at: map[string]*model.Point{},
			cannot: map[string]bool{}})
		return rows[len(rows)-1]
	}
	for _, t := range s.Trials {
		event, ok := t.Params[model.ParamEvent].(string)
		if !ok {
			continue
		}
		if event != model.EventShare && !slices.Contains(events, event) {
			events = append(events, event)
		}
		if t.Valid {
			continue
		}
		switch r := row(model.NewPoint([]results.Trial{t})); {
		case !supported(t):
			r.cannot[event] = true
		case !slices.Contains(r.failed, event):
			r.failed = append(r.failed, event)
		}
	}
	for _, p := range s.Points() {
		row(p).at[p.Params[model.ParamEvent].Word] = p
	}
	slices.SortStableFunc(rows, func(a, b *changeRow) int {
		return cmp.Compare(slices.Index(s.Subjects, a.subject), slices.Index(s.Subjects, b.subject))
	})
	return rows, events
}

// byEvent returns a table with a column for each event.
func byEvent(s *model.Section, sh model.Sheet, cell func(*model.Point) string) []model.Sheet {
	rows, events := changeRows(s)
	sh.Columns = []model.Column{{Title: "Subject"}}
	for _, event := range events {
		sh.Columns = append(sh.Columns, model.Column{Title: eventTitle(s, event), Numeric: true})
	}
	var lines []model.Line
	for _, r := range rows {
		l := model.Line{Cells: []string{wording.Clean(r.label)}}
		shown := false
		for _, event := range events {
			text := wording.Missing
			switch p := r.at[event]; {
			case p != nil:
				text = cell(p)
				shown = shown || text != wording.Missing
			case r.cannot[event]:
				text = "not possible"
			case slices.Contains(r.failed, event):
				text = "failed"
			}
			l.Cells = append(l.Cells, text)
		}
		if shown {
			lines = append(lines, l)
		}
	}
	sh.Group(lines)
	return sh.List()
}

// eventTitle returns an event's column head, with the number of changes if a trial makes several.
func eventTitle(s *model.Section, event string) string {
	title, ok := model.EventTitles[event]
	if !ok {
		title = wording.Clean(event)
	}
	times := 0.0
	for _, p := range s.Points() {
		if p.Params[model.ParamEvent].Word == event {
			times = max(times, p.Stats[results.Applied].Max)
		}
	}
	if event == model.EventFlap {
		times /= 2 // each flap is two changes
	}
	if times > 1 {
		title += fmt.Sprintf(" %s×", wording.Decimal(times, 0))
	}
	return title
}

// countCell shows a count, the worst of the repeats.
func countCell(metric string) func(*model.Point) string {
	return func(p *model.Point) string {
		if !p.Has(metric) {
			return wording.Missing
		}
		return wording.Decimal(p.Stats[metric].Max, 0)
	}
}

// countedRows names the rows whose metric is 0 and that came through every event, and gives the counts of the others.
// It leaves out the events in but.
func countedRows(rows []*changeRow, metric, none, some string, but []string) []string {
	var clear, sentences []string
	for _, r := range rows {
		total, counted := 0.0, false
		var parts []string
		for _, event := range append(slices.Sorted(maps.Keys(r.at)), "") {
			p := r.at[event]
			if p == nil || !p.Has(metric) || slices.Contains(but, event) {
				continue
			}
			counted = true
			if n := p.Stats[metric].Max; n > 0 {
				total += n
				parts = append(parts, fmt.Sprintf("%s %s", model.EventText(event), wording.Decimal(n, 0)))
			}
		}
		switch {
		case total > 0:
			sentences = append(sentences, fmt.Sprintf("%s %s: %s (%s).", wording.Clean(r.label), some, wording.Decimal(total, 0),
				strings.Join(parts, ", ")))
		case counted && len(r.failed) == 0:
			clear = append(clear, wording.Clean(r.label))
		}
	}
	if len(clear) > 0 {
		sentences = append([]string{none + " " + wording.List(clear) + "."}, sentences...)
	}
	return sentences
}
