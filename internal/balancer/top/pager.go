// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// describeInterval is the time from one description of a thing that is shown to the next.
const describeInterval = 2 * time.Second

// showDetails shows all about the selected row.
func (m Model) showDetails() (tea.Model, tea.Cmd) {
	i, ok := m.selected()
	if !ok {
		return m, nil
	}
	p := &pager{lines: []string{"asking the balancer"}, live: true, asked: m.now}
	switch m.view {
	case Services:
		p.service = m.figures.services[i].Name
		p.title = p.service
	case Backends, Changes:
		p.service, p.backend, _ = m.target()
		p.title = p.service + "/" + p.backend
	default:
		// There is no more than the row has: all of it is shown, in lines.
		p.live, p.title = false, string(m.view)
		p.lines = m.showRow(i)
	}
	m.pager = p
	if !p.live {
		return m, nil
	}
	return m, m.requestDescription(*p)
}

// showRow is a row with a line for each column.
func (m Model) showRow(i int) (lines []string) {
	for _, c := range m.table.columns {
		if c.trend == nil {
			lines = append(lines, m.glyphs.fit(c.title, 14, false)+c.text(i))
		}
	}
	return lines
}

// requestDescription asks for the description that a pager shows.
func (m Model) requestDescription(p pager) tea.Cmd {
	ctx, balancer := m.ctx, m.options.Balancer
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		text, err := balancer.Describe(ctx, p.service, p.backend)
		return describedMsg{p.id(), text, err}
	}
}

// handleDescription shows a description.
func (m *Model) handleDescription(msg describedMsg) {
	if m.pager == nil || !m.pager.live || m.pager.id() != msg.id {
		return
	}
	p := *m.pager
	if msg.err != nil {
		p.lines = []string{msg.err.Error()}
	} else {
		p.lines = strings.Split(strings.TrimRight(msg.text, "\n"), "\n")
	}
	m.pager = &p
	m.scroll(0)
}

// scroll moves the text by lines.
func (m *Model) scroll(by int) {
	p := *m.pager
	p.offset = max(min(p.offset+by, len(p.lines)-m.pagerRows()), 0)
	m.pager = &p
}

// handlePagerKey handles a key over a text.
func (m Model) handlePagerKey(key string) (tea.Model, tea.Cmd) {
	m.notice = notice{}
	room := m.pagerRows()
	switch key {
	case "esc", "q", "enter", "left", "backspace":
		m.pager = nil
	case "up", "k":
		m.scroll(-1)
	case "down", "j":
		m.scroll(1)
	case "pgup", "ctrl+b":
		m.scroll(1 - room)
	case "pgdown", "ctrl+f", "space":
		m.scroll(room - 1)
	case "home", "g":
		m.scroll(-1 << 30)
	case "end", "G", "shift+g":
		m.scroll(1 << 30)
	case "d", "e", "x", "w":
		return askFor(map[string]ops.Verb{"d": ops.Drain, "e": ops.Enable, "x": ops.Disable, "w": ops.Weight}[key])(m)
	}
	return m, nil
}
