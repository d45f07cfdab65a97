// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// document is what every form of the report is written from.
type document struct {
	Title string
	Asked string
	// Warnings are what a reader must know before any figure.
	Warnings []string
	Verdict  []string
	Cards    []card
	// Recommended says in words which balancer is best for which load, and Answers
	// at which point.
	Recommended []string
	Answers     *sheet
	Environment []fact
	// Laboratory are facts about it that a figure depends on.
	Laboratory []string
	Loads      []loadPart
	Invalid    *sheet
	Remarks    *sheet
	Evidence   *sheet
	Published  *published
	Reading    []paragraph
}

// card is a verdict in figures, for the top of the page.
type card struct {
	Subject, Load string
	Figures       []figureText
	ink           ink
}

type figureText struct{ Value, Means string }

type fact struct{ Name, Value string }

// loadPart is everything about one load.
type loadPart struct {
	Title, Constant string
	Sheets          []sheet
	section         *section
}

// newDocument lays the whole report down.
func newDocument(run *results.Run) *document {
	sections := aggregate(run.Trials, run.Baseline)
	d := &document{
		Title:       title(run),
		Asked:       asked(run, sections),
		Warnings:    warnings(run),
		Environment: environment(run),
		Laboratory:  cleanAll(run.Environment.Notes),
		Invalid:     invalidSheet(sections),
		Remarks:     remarkSheet(sections),
		Evidence:    evidenceSheet(sections),
		Published:   publishedSheet(run.Published, sections),
		Recommended: answersInWords(sections),
		Answers:     answersSheet(sections),
	}
	colours := newPalette(sections)
	for _, s := range sections {
		d.Verdict = append(d.Verdict, verdict(s)...)
		d.Cards = append(d.Cards, cards(s, colours)...)
		part := loadPart{Title: s.title(), Constant: s.Constant.text(), section: s}
		switch kind := s.kind(); {
		case kind != nil:
			part.Sheets = kind.sheets(s)
		case s.isPackets():
			part.Sheets = packetSheets(s)
		case s.transacts():
			part.Sheets = transactSheets(s)
		case s.isBulk():
			part.Sheets = bulkSheets(s)
		default:
			part.Sheets = loadSheets(s)
		}
		d.Loads = append(d.Loads, part)
	}
	if len(run.Trials) == 0 {
		d.Verdict = []string{"The run has no trials: there is nothing to judge."}
	}
	d.Reading = reading(sections, d.Published != nil)
	return d
}

func title(run *results.Run) string {
	switch {
	case run.Title != "":
		return clean(run.Title)
	case run.Suite != "":
		return clean(run.Suite)
	}
	return "Results"
}

// asked says in a sentence what the run set out to learn.
func asked(run *results.Run, sections []*section) string {
	if len(sections) == 0 {
		return ""
	}
	var subjects, loads []string
	repeats := 0
	for _, s := range sections {
		loads = append(loads, clean(s.Load))
		for _, name := range s.Subjects {
			if name = clean(name); !slices.Contains(subjects, name) {
				subjects = append(subjects, name)
			}
		}
	}
	for _, t := range run.Trials {
		repeats = max(repeats, t.Repeat)
	}
	question := "how many requests a second does each serve, how long do its clients wait, and what does the balancer itself cost"
	switch kind := sections[0].kind(); {
	case kind != nil:
		question = kind.question
	case sections[0].isPackets():
		question = "how many nanoseconds does each spend on a packet"
	case slices.ContainsFunc(sections, (*section).transacts):
		question = "how many transactions a second does each carry, how long does one take, and what does the balancer itself cost"
	case sections[0].isBulk():
		question = "how many gigabits a second does each let through"
	}
	return fmt.Sprintf("Asked of %s under %s, %s: %s?",
		list(subjects), list(loads), times1(repeats), question)
}

// times1 says how often everything was repeated.
func times1(repeats int) string {
	if repeats <= 1 {
		return "once each"
	}
	return fmt.Sprintf("%d times each", repeats)
}

// list joins words as a sentence does.
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

func warnings(run *results.Run) []string {
	var w []string
	if run.Interrupted {
		w = append(w, "The run was interrupted before its last trial. What it measured until then is below.")
	}
	if run.Quick {
		w = append(w, "This is the suite's short form: fewer and shorter trials, so a wider spread.")
	}
	return w
}

func environment(run *results.Run) []fact {
	e := run.Environment
	var facts []fact
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, fact{name, clean(value)})
		}
	}
	cpu := e.CPU
	if e.Cores > 0 {
		cpu = strings.TrimSpace(fmt.Sprintf("%s, %s", e.CPU, counted("core")(fmt.Sprint(e.Cores))))
	}
	add("CPU", strings.TrimPrefix(cpu, ", "))
	if e.MemoryBytes > 0 {
		add("Memory", bytesText(float64(e.MemoryBytes)))
	}
	add("Kernel", e.Kernel)
	machine, host := virtualFacts(e.Virtual)
	add("Virtual machine", machine)
	add("Its host", host)
	versions := maps.Clone(e.Versions)
	if versions["kernel"] == e.Kernel {
		delete(versions, "kernel") // It has a line of its own.
	}
	add("Programs", pairs(versions))
	add("Source", e.Commit)
	add("Limits", pairs(e.Limits))
	if !run.Started.IsZero() {
		when := run.Started.UTC().Format("2006-01-02 15:04 MST")
		if run.Ended.After(run.Started) {
			when += ", took " + run.Ended.Sub(run.Started).Round(time.Second).String()
		}
		add("Measured", when)
	}
	add("Command", run.Command)
	return facts
}

// pairs joins a map's entries, sorted by name.
func pairs(m map[string]string) string {
	var parts []string
	for k, v := range m {
		parts = append(parts, strings.ReplaceAll(k, "_", " ")+" "+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
