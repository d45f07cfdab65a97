// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// document is the content of the report; every form of the report is written from it.
type document struct {
	Title string
	Asked string
	// Warnings come before any figure.
	Warnings []string
	// Overview is the first screen.
	Overview overview
	// Answers is the table of the best balancer at each point.
	Answers     *model.Sheet
	Environment []fact
	// Laboratory are facts about the laboratory that a figure depends on.
	Laboratory []string
	Loads      []loadPart
	Invalid    *model.Sheet
	Remarks    *model.Sheet
	Evidence   *model.Sheet
	Published  *published
	Reading    []model.Paragraph
}

type fact struct{ Name, Value string }

// loadPart is everything about one load.
type loadPart struct {
	Title, Constant string
	// Answer is the short result of the load; it is empty for the load of the overview. Verdict are the other
	// conclusions from the load's figures.
	Answer, Verdict []string
	Sheets          []model.Sheet
	section         *model.Section
}

// newDocument composes the whole report.
func newDocument(run *results.Run) *document {
	sections := aggregate(run.Trials, run.Baseline)
	d := &document{
		Title:       title(run),
		Asked:       asked(run, sections),
		Warnings:    warnings(run),
		Environment: environment(run),
		Laboratory:  wording.CleanAll(run.Environment.Notes),
		Invalid:     invalidSheet(sections),
		Remarks:     remarkSheet(sections),
		Evidence:    evidenceSheet(sections),
		Published:   publishedSheet(run.Published, sections),
		Answers:     answersSheet(sections),
	}
	each := pace(run)
	d.Overview = newOverview(sections, model.NewPalette(sections), each, levelOf(run))
	for _, s := range sections {
		part := loadPart{Title: s.Title(), Constant: s.Constant.Text(), Verdict: model.Verdict(s), Sheets: s.Sheets(),
			section: s}
		if s != d.Overview.of {
			part.Answer = sayAnswer(s, each)
		}
		d.Loads = append(d.Loads, part)
	}
	d.Reading = reading(sections, d.Published != nil)
	return d
}

func title(run *results.Run) string {
	switch {
	case run.Title != "":
		return wording.Clean(run.Title)
	case run.Suite != "":
		return wording.Clean(run.Suite)
	}
	return "Results"
}

// asked returns a sentence with the question that the run was to answer.
func asked(run *results.Run, sections []*model.Section) string {
	if len(sections) == 0 {
		return ""
	}
	var subjects, loads []string
	repeats := 0
	for _, s := range sections {
		loads = append(loads, wording.Clean(s.Load))
		for _, name := range s.Subjects {
			if name = wording.Clean(name); !slices.Contains(subjects, name) {
				subjects = append(subjects, name)
			}
		}
	}
	for _, t := range run.Trials {
		repeats = max(repeats, t.Repeat)
	}
	return fmt.Sprintf("Asked of %s under %s, %s.", wording.List(subjects), wording.List(loads), repeatsText(repeats))
}

// repeatsText describes how often each trial was repeated.
func repeatsText(repeats int) string {
	if repeats <= 1 {
		return "once each"
	}
	return fmt.Sprintf("%d times each", repeats)
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
			facts = append(facts, fact{name, wording.Clean(value)})
		}
	}
	cpu := e.CPU
	if e.Cores > 0 {
		cpu = strings.TrimSpace(fmt.Sprintf("%s, %s", e.CPU, wording.Counted("core")(fmt.Sprint(e.Cores))))
	}
	add("CPU", strings.TrimPrefix(cpu, ", "))
	if e.MemoryBytes > 0 {
		add("Memory", wording.BytesText(float64(e.MemoryBytes)))
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

// virtualFacts describe the virtual machine that a run was in, and its host.
func virtualFacts(v *results.Virtual) (machine, host string) {
	if v == nil {
		return "", ""
	}
	how := map[string]string{"kvm": "with KVM", "tcg": "emulated (TCG)",
		"tcg-icount": "emulated (TCG), one processor whose clock counts instructions"}[v.Accelerator]
	if how == "" {
		how = v.Accelerator
	}
	parts := []string{v.Emulator, how}
	if v.Reason != "" {
		parts = append(parts, v.Reason)
	}
	if v.Package != "" {
		parts = append(parts, v.Package)
	}
	if v.Clock != "" {
		parts = append(parts, "clock source "+v.Clock)
	}
	host = fmt.Sprintf("%s, %s, Linux %s", v.HostCPU, wording.Counted("core")(fmt.Sprint(v.HostCores)), v.HostKernel)
	return strings.Join(parts, ", "), strings.TrimPrefix(host, ", ")
}
