// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// ErrNothingShared means that two runs have no point in common.
var ErrNothingShared = errors.New("no subject was measured under the same load with the same parameters in both")

// repeatable is the relative difference between the ratios of two runs of a suite on one machine above which a reader
// should trust neither.
const repeatable = 0.10

// Compare writes the changes from the first run to the second: for every point that both runs measured, the medians of
// the load's main figure and of the balancer's CPU time, and the point's ratio to the second run's baseline as its own
// run measured it, on which two runs at different hours should agree. Compare returns ErrNothingShared, or w's error.
func Compare(w io.Writer, format Format, language Language, first, second *results.Run) error {
	d, err := comparison(first, second)
	if err != nil {
		return err
	}
	words := language.words()
	words.document(d)
	if format == FormatMarkdown {
		m := &markdownWriter{w: bufio.NewWriter(w), words: words}
		m.comparison(d)
		return m.w.Flush()
	}
	t := &textWriter{w: bufio.NewWriter(w), words: words}
	t.comparison(d)
	return t.w.Flush()
}

func (m *markdownWriter) comparison(d *document) {
	fmt.Fprintf(m.w, "# %s\n", escapeMarkdown(d.Title))
	for _, s := range d.Warnings {
		fmt.Fprintf(m.w, "\n> %s\n", escapeMarkdown(s))
	}
	m.heading("Verdict")
	m.items(d.Overview.Answer)
	for _, l := range d.Loads {
		m.sheet("##", &l.Sheets[0])
	}
}

func (t *textWriter) comparison(d *document) {
	t.heading(d.Title, '=')
	for _, s := range d.Warnings {
		t.paragraph("! ", s)
	}
	for _, s := range d.Overview.Answer {
		t.paragraph("* ", s)
	}
	for i := range d.Loads {
		t.sheet(&d.Loads[i].Sheets[0])
	}
}

func comparison(first, second *results.Run) (*document, error) {
	d := &document{
		Title:    fmt.Sprintf("%s, compared with %s", runName(second), runName(first)),
		Warnings: differences(first, second),
	}
	// One baseline for both: ratios to two different subjects cannot be compared.
	before, after := aggregate(first.Trials, second.Baseline), aggregate(second.Trials, second.Baseline)
	for _, s := range after {
		i := slices.IndexFunc(before, func(b *model.Section) bool { return b.Load == s.Load })
		if i < 0 {
			continue
		}
		c := compared(before[i], s)
		if len(c.lines) == 0 {
			continue
		}
		d.Loads = append(d.Loads, loadPart{Title: s.Title(), Sheets: []model.Sheet{c.sheet()}, section: s})
		said := changedBeyond(before[i], s)
		if said == "" {
			said = c.verdict()
		}
		d.Overview.Answer = append(d.Overview.Answer, s.Title()+": "+said)
	}
	if len(d.Loads) == 0 {
		return nil, fmt.Errorf("comparing %s with %s: %w", runName(second), runName(first), ErrNothingShared)
	}
	return d, nil
}

// changedBeyond names the subjects whose ratio to the baseline has changed since the previous run: the intervals of the
// points that both runs have do not overlap. It is empty if a run has no intervals.
func changedBeyond(before, after *model.Section) string {
	y, ok := after.Yardstick()
	if !ok {
		return ""
	}
	before, after = sharedWith(before, after), sharedWith(after, before)
	var changed []string
	same := 0
	for _, name := range after.Subjects {
		then := before.Compare(y, name, before.Baseline, y.Metric)
		now := after.Compare(y, name, after.Baseline, y.Metric)
		switch {
		case name == after.Baseline || !then.Sure() || !now.Sure():
		case now.Low > then.High || now.High < then.Low:
			changed = append(changed, fmt.Sprintf("%s from %s to %s", wording.Clean(name), then.Interval(), now.Interval()))
		default:
			same++
		}
	}
	switch {
	case len(changed)+same == 0:
		return ""
	case len(changed) == 0:
		return fmt.Sprintf(
			"nothing changed beyond the spread: of %d subjects, the intervals of the ratio to %s overlap.", same,
			wording.Clean(after.Baseline))
	}
	return fmt.Sprintf("changed beyond the spread, in %s × %s: %s; not told apart: %d.", y.Noun, wording.Clean(after.Baseline),
		strings.Join(changed, "; "), same)
}

// sharedWith returns a section without the points that another one lacks.
func sharedWith(s, other *model.Section) *model.Section {
	shared := *s
	shared.Groups = nil
	for _, g := range s.Groups {
		shared.Groups = append(shared.Groups, &model.Group{Params: g.Params,
			Points: slices.DeleteFunc(slices.Clone(g.Points), func(p *model.Point) bool {
				_, same := find(other, p)
				return same == nil
			})})
	}
	return &shared
}

func runName(run *results.Run) string {
	name := title(run)
	if commit := wording.Clean(run.Environment.Commit); commit != "" {
		name += " at " + commit[:min(len(commit), 12)]
	}
	if !run.Started.IsZero() {
		name += " of " + run.Started.UTC().Format("2006-01-02 15:04")
	}
	return name
}

// differences warns of differences that make two runs hard to compare.
func differences(first, second *results.Run) []string {
	var all []string
	differ := func(what, a, b string) {
		if a != b {
			all = append(all, fmt.Sprintf("%s differs: %s, then %s.", what, cmp.Or(wording.Clean(a), wording.Missing),
				cmp.Or(wording.Clean(b), wording.Missing)))
		}
	}
	differ("The suite", first.Suite, second.Suite)
	differ("The baseline", cmp.Or(first.Baseline, model.BaselineSubject),
		cmp.Or(second.Baseline, model.BaselineSubject))
	differ("The form", formName(first), formName(second))
	differ("The CPU", first.Environment.CPU, second.Environment.CPU)
	differ("The number of cores", fmt.Sprint(first.Environment.Cores), fmt.Sprint(second.Environment.Cores))
	differ("The kernel", first.Environment.Kernel, second.Environment.Kernel)
	if first.Interrupted || second.Interrupted {
		all = append(all, "A run was interrupted before its last trial.")
	}
	return all
}

func formName(run *results.Run) string {
	if run.Quick {
		return "quick"
	}
	return "long"
}

// comparedLoad is a load that both runs have.
type comparedLoad struct {
	metric, title, noun, baseline string
	lines                         []comparedPoint
}

// comparedPoint is a point in both runs.
type comparedPoint struct {
	place         string
	label         string
	baseline      bool
	before, after *model.Point
	// ratios are the ratios of the point to its baseline in each run; 0 without a baseline.
	ratios [2]float64
}

func compared(before, after *model.Section) comparedLoad {
	metric, title, noun := after.Rate()
	if by := after.Kind.Compared; by != nil {
		metric, title, noun = by.Name, by.Title, by.Noun
	}
	c := comparedLoad{metric: metric, title: title, noun: noun, baseline: after.Baseline}
	for _, g := range after.Groups {
		for _, p := range g.Points {
			at, old := find(before, p)
			if old == nil || !p.Has(metric) || !old.Has(metric) {
				continue
			}
			line := comparedPoint{place: g.Params.Only(after.Varying).Text(), label: wording.Clean(p.Label),
				before: old,
				after:  p, baseline: p.Subject == after.Baseline}
			line.ratios[0], _ = model.RatioOf(old, at.Best(before.Baseline, metric), metric)
			line.ratios[1], _ = model.RatioOf(p, g.Best(after.Baseline, metric), metric)
			c.lines = append(c.lines, line)
		}
	}
	return c
}

// find returns the point with p's subject and parameters in another run, and its group.
func find(s *model.Section, p *model.Point) (*model.Group, *model.Point) {
	key := p.Params.Key()
	for _, g := range s.Groups {
		for _, q := range g.Points {
			if q.Subject == p.Subject && q.Params.Key() == key {
				return g, q
			}
		}
	}
	return nil, nil
}

// drift returns the change of the ratio to the baseline, relative to the first run's; ok is false where there is none.
func (l comparedPoint) drift() (float64, bool) {
	if l.baseline || l.ratios[0] <= 0 || l.ratios[1] <= 0 {
		return 0, false
	}
	return l.ratios[1]/l.ratios[0] - 1, true
}

func (c comparedLoad) sheet() model.Sheet {
	sh := model.Sheet{
		Title: "What changed: " + c.title,
		Lead:  "Medians of the first run and of the second. Two runs at different hours meet different machines; the ratios to each run's own baseline are what should agree.",
		Columns: []model.Column{
			{Title: "Point"}, {Title: "Subject"}, {Title: "First", Numeric: true}, {Title: "Second", Numeric: true},
			{Title: "Change", Numeric: true},
			{Title: "Spread"}, {Title: "First × " + c.baseline, Numeric: true},
			{Title: "Second × " + c.baseline, Numeric: true},
			{Title: "Change of the ratio", Numeric: true}, {Title: "Change of CPU", Numeric: true},
		},
	}
	var lines []model.Line
	for _, l := range c.lines {
		lines = append(lines, model.Line{Baseline: l.baseline, Cells: l.cells(c.metric)})
	}
	sh.Group(lines)
	sh.DropBlankColumns()
	if sh.Blank(0) {
		sh.Remove(0)
	}
	return sh
}

func (l comparedPoint) cells(metric string) []string {
	before, after := l.before.Stats[metric], l.after.Stats[metric]
	cells := []string{cmp.Or(l.place, wording.Missing), l.label, wording.Significant(before.Median),
		wording.Significant(after.Median),
		changeOf(after.Median, before.Median), "apart"}
	if before.Overlaps(after) {
		cells[5] = "overlaps"
	}
	for _, r := range l.ratios {
		if r > 0 && !l.baseline {
			cells = append(cells, wording.RatioText(r))
		} else {
			cells = append(cells, wording.Missing)
		}
	}
	drift := wording.Missing
	if d, ok := l.drift(); ok {
		drift = signedPercent(d)
	}
	cpu := wording.Missing
	if r, ok := model.RatioOf(l.after, l.before, results.BalancerCPUUsPerRequest); ok {
		cpu = signedPercent(r - 1)
	}
	return append(cells, drift, cpu)
}

func changeOf(after, before float64) string {
	r, ok := model.Ratio(after, before)
	if !ok {
		return wording.Missing
	}
	return signedPercent(r - 1)
}

// signedPercent formats a relative change: "+3.1 %", "−0.4 %".
func signedPercent(v float64) string {
	text := wording.Decimal(v*100, 1) + " %"
	if v > 0 && !strings.HasPrefix(text, "0.0") {
		return "+" + text
	}
	return text
}

// verdict describes by how much the ratios changed.
func (c comparedLoad) verdict() string {
	n, beyond, worst := 0, 0, comparedPoint{}
	for _, l := range c.lines {
		d, ok := l.drift()
		if !ok {
			continue
		}
		n++
		if math.Abs(d) >= repeatable {
			beyond++
		}
		if w, ok := worst.drift(); !ok || math.Abs(d) > math.Abs(w) {
			worst = l
		}
	}
	if n == 0 {
		return fmt.Sprintf("%d points are in both runs, none with a baseline to hold it against.", len(c.lines))
	}
	d, _ := worst.drift()
	text := fmt.Sprintf("of %d ratios to %s, %d differ by 10 %% or more; the largest difference is %s (%s", n,
		c.baseline, beyond, signedPercent(d), worst.label)
	if worst.place != "" {
		text += ", " + worst.place
	}
	return text + ")."
}
