// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/tools/tune"
)

// writeJSON prints a value for programs.
func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// The widths at which the long columns are wrapped.
const (
	valueWidth = 26
	whyWidth   = 60
	proseWidth = 96
)

// tuneTable is a table whose last column is prose.
func tuneTable(w io.Writer, columns ...any) table.Writer {
	t := cmdkit.NewTable(w, columns...)
	var configs []table.ColumnConfig
	for i, name := range columns {
		config := table.ColumnConfig{Name: name.(string), WidthMax: valueWidth, WidthMaxEnforcer: text.WrapSoft}
		if i == len(columns)-1 {
			config.WidthMax = whyWidth
		}
		configs = append(configs, config)
	}
	t.SetColumnConfigs(configs)
	return t
}

// order is the order in which states are shown, with those first that need the operator.
var order = []tune.State{tune.Failed, tune.Differs, tune.Changed, tune.Advised, tune.Unread, tune.Good, tune.Left,
	tune.Machines, tune.Absent}

// writeTune prints the findings of check: the plan, the differences, and the number of correct settings.
func writeTune(w io.Writer, r *tune.Report, all bool) {
	writeHost(w, r)
	for _, plan := range r.Plans {
		fmt.Fprintf(w, "\n%s", plan)
	}
	fmt.Fprintln(w)
	shown := r.Findings
	if !all {
		shown = r.With(tune.Failed, tune.Differs, tune.Advised, tune.Unread)
	}
	if len(shown) > 0 {
		writeFindings(w, shown)
	}
	if !all {
		writeRest(w, r)
	}
}

func writeHost(w io.Writer, r *tune.Report) {
	fmt.Fprintf(w, "role %s, mode %s; Linux %s, %d CPUs, NUMA nodes: %d, %.1f GiB\n",
		r.Role, r.Mode, r.Host.Kernel, r.Host.CPUs, r.Host.Nodes, float64(r.Host.MemoryBytes)/(1<<30))
	for _, note := range r.Notes {
		fmt.Fprintf(w, "- %s\n", note)
	}
}

// writeFindings prints a row for each finding; "!" marks those that matter.
func writeFindings(w io.Writer, findings []tune.Finding) {
	findings = slices.Clone(findings)
	slices.SortStableFunc(findings, func(a, b tune.Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)),
			boolFirst(a.Matters, b.Matters))
	})
	t := tuneTable(w, "", "item", "now", "wanted", "state", "why")
	for _, f := range findings {
		mark := ""
		if f.Deviates() {
			mark = "!"
		}
		why := f.Why
		if f.Note != "" {
			why += " (" + f.Note + ")"
		}
		t.AppendRow(table.Row{mark, f.Item, cmdkit.OrDash(f.Now), withUnit(f), howMany(f), why})
	}
	t.Render()
}

func boolFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func withUnit(f tune.Finding) string {
	if f.Wanted == "" || f.Unit == "" {
		return cmdkit.OrDash(f.Wanted)
	}
	return f.Wanted + " " + f.Unit
}

// howMany returns the state of an item, with counts if the item has several settings.
func howMany(f tune.Finding) string {
	if len(f.Settings) < 2 {
		return string(f.State)
	}
	n := 0
	for _, s := range f.Settings {
		if s.State == f.State {
			n++
		}
	}
	return fmt.Sprintf("%s (%d of %d)", f.State, n, len(f.Settings))
}

// writeRest counts the findings that were not shown.
func writeRest(w io.Writer, r *tune.Report) {
	counts := map[tune.State]int{}
	for _, f := range r.Findings {
		counts[f.State]++
	}
	var parts []string
	for _, of := range []struct {
		state   tune.State
		meaning string
	}{{tune.Good, "as they should be"}, {tune.Left, "left alone on purpose"},
		{tune.Machines, "the machine's, not this namespace's"}, {tune.Absent, "not applicable here"}} {
		if n := counts[of.state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, of.meaning))
		}
	}
	fmt.Fprintf(w, "items besides: %s (--all shows them)\n", strings.Join(parts, ", "))
}

// writeApplied prints the settings that were changed and those that were not.
func writeApplied(w io.Writer, r *tune.Report) {
	writeHost(w, r)
	shown := r.With(tune.Failed, tune.Changed, tune.Advised, tune.Differs, tune.Unread)
	if len(shown) == 0 {
		fmt.Fprintln(w, "nothing to change")
		return
	}
	t := tuneTable(w, "item", "before", "now", "state", "note")
	for _, f := range shown {
		now := f.Wanted
		if f.State != tune.Changed {
			now = f.Now
		}
		t.AppendRow(table.Row{f.Item, cmdkit.OrDash(f.Now), cmdkit.OrDash(now), howMany(f), f.Note})
	}
	t.Render()
	if len(r.With(tune.Changed)) > 0 {
		fmt.Fprintln(w, "`jeoul tune revert` takes it back")
	}
}

// writeReverted prints the settings that were undone.
func writeReverted(w io.Writer, events []tune.Event) {
	for _, e := range events {
		switch {
		case e.Left:
			fmt.Fprintf(w, "%s: left as it is: %s\n", e.What, e.Note)
		case e.Note != "":
			fmt.Fprintf(w, "%s: %s\n", e.What, e.Note)
		default:
			fmt.Fprintf(w, "%s: %s -> %s\n", e.What, e.From, e.To)
		}
	}
}

func revertCommand(e tune.Event) string {
	if e.Command == "" {
		return "# " + e.What + ": " + e.Note
	}
	return e.Command
}

// writeProfile prints each item as a paragraph.
func writeProfile(w io.Writer, p *tune.Profile) {
	for i, it := range p.Items {
		if i > 0 {
			fmt.Fprintln(w)
		}
		roles := []string{}
		for _, role := range it.Roles {
			roles = append(roles, string(role))
		}
		about := "for " + strings.Join(roles, ", ")
		if len(it.Modes) > 0 {
			about += ", in " + strings.Join(it.Modes, ", ")
		}
		fmt.Fprintf(w, "%s: %s (%s)\n", it.ID, it.Setting, about)
		row := func(name, what string) {
			if what != "" {
				fmt.Fprintf(w, "  %-9s %s\n", name, indented(what))
			}
		}
		row("value", valueOf(it))
		row("why", it.Why)
		row("costs", it.Cost)
		row("not for", it.Except)
		row("needs", needsOf(it.Needs))
		row("source", it.Source)
		row("document", documentOf(it.Document))
	}
}

// indented wraps prose after a paragraph's heading.
func indented(what string) string {
	lines := strings.Split(text.WrapSoft(what, proseWidth), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n            ")
}

func valueOf(it tune.Item) string {
	value := it.Value.String()
	switch it.Compare {
	case tune.CompareAtLeast, tune.CompareAtMost:
		value = strings.ReplaceAll(string(it.Compare), "-", " ") + " " + value
	case tune.CompareCovers:
		value = "a range that covers " + value
	case tune.CompareNonzero:
		value = "not zero"
	}
	if len(it.Accept) > 0 {
		value += " (as good: " + strings.Join(it.Accept, ", ") + ")"
	}
	if it.Unit != "" {
		value += " " + it.Unit
	}
	if it.Matters {
		value += "; it matters"
	}
	return value
}

func needsOf(n tune.Needs) string {
	var all []string
	if n.Card != "" {
		all = append(all, "a "+n.Card+" network card")
	}
	if n.Queues > 0 {
		all = append(all, fmt.Sprintf("%d queues", n.Queues))
	}
	if n.Cores > 0 {
		all = append(all, fmt.Sprintf("%d CPUs", n.Cores))
	}
	if n.NUMA {
		all = append(all, "several NUMA nodes")
	}
	if n.Conntrack {
		all = append(all, "connection tracking")
	}
	if n.Kernel != "" {
		all = append(all, "Linux "+n.Kernel)
	}
	return strings.Join(all, ", ")
}

func documentOf(d *tune.Document) string {
	if d == nil {
		return ""
	}
	value := d.Value
	for _, role := range slices.Sorted(maps.Keys(d.Values)) {
		value = strings.TrimPrefix(value+", "+string(role)+" "+d.Values[role], ", ")
	}
	return strings.TrimPrefix(value+": "+d.Why, ": ")
}
