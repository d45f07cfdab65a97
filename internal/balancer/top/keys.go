// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// binding is a key, or some that do the same.
type binding struct {
	keys []string
	// name is how help writes them, and help their effect. short is the word at the foot of the screen; empty: it is
	// not there.
	name, help, short string
	action            func(m Model) (tea.Model, tea.Cmd)
}

// bindings are the keys over a table, but for those of the views.
func bindings() []binding {
	return []binding{
		{[]string{"q", "ctrl+c"}, "q", "quit", "quit", func(m Model) (tea.Model, tea.Cmd) { return m, tea.Quit }},
		{[]string{"ctrl+z"}, "Ctrl+Z", "suspend", "", func(m Model) (tea.Model, tea.Cmd) { return m, tea.Suspend }},
		{[]string{"?", "h", "f1"}, "?", "show these keys", "help", Model.showHelp},
		{[]string{"enter"}, "Enter", "show all about the selected row", "details", Model.showDetails},
		{[]string{"/"}, "/", "show only rows that contain some words", "filter", Model.startFilter},
		{[]string{"s"}, "s", "sort by the next column", "sort", func(m Model) (tea.Model, tea.Cmd) {
			return m.sortByNext(1)
		}},
		{
			[]string{"S", "shift+s"},
			"S",
			"sort by the column before",
			"",
			func(m Model) (tea.Model, tea.Cmd) { return m.sortByNext(-1) },
		},
		{[]string{"r"}, "r", "reverse the order", "", Model.reverseOrder},
		{[]string{"d"}, "d", "drain the selected backend", "drain", askFor(ops.Drain)},
		{[]string{"e"}, "e", "enable it again", "enable", askFor(ops.Enable)},
		{[]string{"x"}, "x", "disable it: its flows end", "disable", askFor(ops.Disable)},
		{[]string{"w"}, "w", "give it another weight", "weight", askFor(ops.Weight)},
		{[]string{"u"}, "u", "take back the latest operation", "undo", askFor(ops.Undo)},
		{[]string{"a"}, "a", "show drops that no packet met, too, or hide them", "", Model.toggleAll},
		{[]string{"b"}, "b", "show the backends of the selected service", "", Model.showBackends},
		{[]string{"esc"}, "Esc", "leave what is open; show all rows again", "", Model.clearFilter},
		{[]string{"tab"}, "Tab", "show the next view", "", func(m Model) (tea.Model, tea.Cmd) {
			return m.nextView(1), nil
		}},
		{
			[]string{"shift+tab"},
			"Shift+Tab",
			"show the view before",
			"",
			func(m Model) (tea.Model, tea.Cmd) { return m.nextView(-1), nil },
		},
		{[]string{"up", "k"}, "Up, k", "move up", "", moving(-1)},
		{[]string{"down", "j"}, "Down, j", "move down", "", moving(1)},
		{[]string{"pgup", "ctrl+b"}, "PgUp", "move up by a screen", "", paging(-1)},
		{[]string{"pgdown", "ctrl+f", "space"}, "PgDn", "move down by a screen", "", paging(1)},
		{[]string{"home", "g"}, "Home, g", "move to the first row", "", moving(-1 << 30)},
		{[]string{"end", "G", "shift+g"}, "End, G", "move to the last row", "", moving(1 << 30)},
	}
}

// handleKey handles a key.
func (m Model) handleKey(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	name := key.String()
	if name == "ctrl+c" {
		return m, tea.Quit
	}
	switch {
	case m.question != nil:
		return m.handleAnswer(name, key.Text)
	case m.typing != nil:
		return m.handleFilterKey(name, key.Text)
	case m.pager != nil:
		return m.handlePagerKey(name)
	}
	m.notice = notice{}
	if i := slices.IndexFunc(Views, func(v View) bool { return name == viewKey(v) }); i >= 0 {
		return m.showView(Views[i]), nil
	}
	for _, b := range bindings() {
		if slices.Contains(b.keys, name) {
			return b.action(m)
		}
	}
	return m, nil
}

// showView switches to a view.
func (m Model) showView(v View) Model {
	m.view = v
	m.updateTable()
	return m
}

// nextView switches to a view that is so many further.
func (m Model) nextView(by int) Model {
	return m.showView(Views[(slices.Index(Views, m.view)+by+len(Views))%len(Views)])
}

func moving(by int) func(Model) (tea.Model, tea.Cmd) {
	return func(m Model) (tea.Model, tea.Cmd) {
		m.moveCursor(by)
		return m, nil
	}
}

func paging(by int) func(Model) (tea.Model, tea.Cmd) {
	return func(m Model) (tea.Model, tea.Cmd) {
		m.moveCursor(by * max(m.tableRows()-1, 1))
		return m, nil
	}
}

// sortByNext sorts by another column, from its first row on.
func (m Model) sortByNext(step int) (tea.Model, tea.Cmd) {
	m.placeInView(func(p *place) { *p = place{sort: p.sort.next(m.table, step), filter: p.filter} })
	m.updateTable()
	return m, nil
}

func (m Model) reverseOrder() (tea.Model, tea.Cmd) {
	m.placeInView(func(p *place) { p.sort.up = !p.sort.up })
	m.updateTable()
	return m, nil
}

func (m Model) toggleAll() (tea.Model, tea.Cmd) {
	m.options.All = !m.options.All
	m.updateTable()
	return m, nil
}

// startFilter has the user type one.
func (m Model) startFilter() (tea.Model, tea.Cmd) {
	m.typing = &input{text: m.places[m.view].filter}
	return m, nil
}

// handleFilterKey handles a key of the filter; the rows follow at once.
func (m Model) handleFilterKey(key, text string) (tea.Model, tea.Cmd) {
	typing := *m.typing
	m.typing = &typing
	switch key {
	case "enter":
		m.typing = nil
		return m, nil
	case "esc":
		m.typing = nil
		return m.clearFilter()
	case "up", "down", "pgup", "pgdown":
		m.typing = nil
		return m.handleKey(tea.KeyPressMsg(tea.Key{Text: "", Code: keyCodes[key]}))
	}
	typing.handleKey(key, m.glyphs.clean(text))
	m.placeInView(func(p *place) { p.filter = typing.text })
	m.updateTable()
	return m, nil
}

// keyCodes are the codes of keys that end the typing of a filter and move the cursor.
var keyCodes = map[string]rune{"up": tea.KeyUp, "down": tea.KeyDown, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown}

// clearFilter shows all rows again.
func (m Model) clearFilter() (tea.Model, tea.Cmd) {
	m.placeInView(func(p *place) { p.filter = "" })
	m.updateTable()
	return m, nil
}

// showBackends shows the backends of the selected service.
func (m Model) showBackends() (tea.Model, tea.Cmd) {
	i, ok := m.selected()
	if !ok || m.view != Services {
		m.notice = notice{"select a service first: press " + viewKey(Services), warn}
		return m, nil
	}
	m.places[Backends] = place{filter: m.figures.services[i].Name + "/"}
	return m.showView(Backends), nil
}

// showHelp shows the keys.
func (m Model) showHelp() (tea.Model, tea.Cmd) {
	lines := []string{"Keys:", ""}
	for _, v := range Views {
		lines = append(lines, fmt.Sprintf("  %-10s %s", viewKey(v), v))
	}
	for _, b := range bindings() {
		lines = append(lines, fmt.Sprintf("  %-10s %s", b.name, b.help))
	}
	lines = append(lines, "", "NEW/S are new connections a second, BIT/S bits to backends and BACK/S bits back through",
		"the balancer, as far as it sees them: in the modes nat, fullnat and proxy. Rates are those of",
		"the last two seconds. SHARE is what a backend gets of its service's new connections, and DUE",
		"what its weight asks for.")
	m.pager = &pager{title: "help", lines: lines}
	return m, nil
}
