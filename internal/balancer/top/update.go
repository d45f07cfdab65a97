// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// New returns a model without a reading. Error: there is no such view or column.
func New(options Options) (Model, error) {
	if !slices.Contains(Views, options.View) {
		return Model{}, fmt.Errorf("there is no view %q", options.View)
	}
	m := Model{
		ctx:     context.Background(),
		options: options,
		glyphs:  glyphsOf(options.ASCII),
		history: &history{},
		now:     options.Now(),
		view:    options.View,
		places:  map[View]place{},
		figures: snapshotFigures{status: &ops.Status{}},
	}
	m.places[Drops] = place{sort: sorting{column: "PKT/S"}}
	m.updateTable()
	if options.Sort != "" {
		title, err := m.table.titled(options.Sort)
		if err != nil {
			return Model{}, err
		}
		m.placeInView(func(p *place) { p.sort = m.table.sorted(title) })
	}
	m.placeInView(func(p *place) { p.filter = options.Filter })
	m.updateTable()
	return m, nil
}

// titled returns the title of a column as a person names it. Error: the table has none.
func (t *table) titled(name string) (string, error) {
	var titles []string
	for _, c := range t.columns {
		if strings.EqualFold(c.title, name) && c.trend == nil {
			return c.title, nil
		}
		if c.trend == nil {
			titles = append(titles, strings.ToLower(c.title))
		}
	}
	return "", fmt.Errorf("there is no column %q in this view; use one of %s", name, strings.Join(titles, ", "))
}

// Init reads the balancer, and starts the clock.
func (m Model) Init() tea.Cmd { return tea.Batch(m.readStatus(), m.tickClock()) }

// Update takes a message.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.updateTable()
	case clockMsg:
		m.now = msg.now
		m.updateTable()
		return m, m.tickClock()
	case dueMsg:
		m.outage.requested = m.now
		return m, m.readStatus()
	case readingMsg:
		return m.handleReading(msg)
	case describedMsg:
		m.handleDescription(msg)
	case operatedMsg:
		m.notice = noticeOf(msg)
	case tea.PasteMsg:
		if m.typing != nil {
			m.typing.insert(m.glyphs.clean(msg.Content))
			m.placeInView(func(p *place) { p.filter = m.typing.text })
			m.updateTable()
		}
	case tea.KeyPressMsg:
		return m.handleKey(msg)
	}
	return m, nil
}

// handleReading shows a reading, and has the next one come.
func (m Model) handleReading(msg readingMsg) (tea.Model, tea.Cmd) {
	m.now, m.outage.requested = msg.at, time.Time{}
	if msg.err != nil {
		if m.outage.since.IsZero() {
			m.outage.since = msg.at
		}
		m.outage.err = msg.err
		return m, scheduleReading(retryInterval)
	}
	if !m.outage.since.IsZero() && m.known {
		m.notice = notice{fmt.Sprintf("the balancer answers again, after %s", formatAge(msg.at.Sub(m.outage.since))),
			good}
	}
	m.outage = outage{}
	m.history.add(msg.status, msg.at)
	m.figures, m.known, m.readAt = newFigures(msg.status, m.history, msg.at), true, msg.at
	m.updateTable()
	commands := []tea.Cmd{scheduleReading(m.pause(msg.took))}
	if m.pager != nil && m.pager.live && msg.at.Sub(m.pager.asked) >= describeInterval {
		m.pager.asked = msg.at
		commands = append(commands, m.requestDescription(*m.pager))
	}
	return m, tea.Batch(commands...)
}

// readStatus asks for a status.
func (m Model) readStatus() tea.Cmd {
	ctx, balancer, now := m.ctx, m.options.Balancer, m.options.Now
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		began := now()
		status, err := balancer.Status(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", readTimeout)
		}
		at := now()
		return readingMsg{status, err, at, at.Sub(began)}
	}
}

// scheduleReading has the next reading come after a pause.
func scheduleReading(pause time.Duration) tea.Cmd {
	return tea.Tick(pause, func(time.Time) tea.Msg { return dueMsg{} })
}

// tickClock has the time come in a second.
func (m Model) tickClock() tea.Cmd {
	now := m.options.Now
	return tea.Tick(time.Second, func(time.Time) tea.Msg { return clockMsg{now()} })
}

// updateTable makes the table of the present view again. The cursor stays on its row, wherever that has come to be;
// where the row has gone, it stays in its place.
func (m *Model) updateTable() {
	m.table = m.figures.table(m.view, m.options.All, m.balancerTime())
	p := m.places[m.view]
	m.order = m.table.selectAndSort(p.sort, p.filter)
	if at := slices.IndexFunc(m.order, func(i int) bool { return m.table.id(i) == p.selected }); at >= 0 {
		p.cursor = at
	}
	m.places[m.view] = p
	m.moveCursor(0)
}

// moveCursor moves the cursor by rows, and shows it.
func (m *Model) moveCursor(by int) {
	m.placeInView(func(p *place) {
		p.cursor = min(max(p.cursor+by, 0), max(len(m.order)-1, 0))
		p.selected = ""
		if len(m.order) > 0 {
			p.selected = m.table.id(m.order[p.cursor])
		}
		room := max(m.tableRows(), 1)
		p.offset = min(max(p.offset, p.cursor-room+1), p.cursor)
		p.offset = max(min(p.offset, len(m.order)-room), 0)
	})
}

// noticeOf returns the notice of an operation's result.
func noticeOf(msg operatedMsg) notice {
	if msg.err != nil {
		return notice{msg.err.Error(), bad}
	}
	text := "done: " + operationText(msg.done)
	if len(msg.done.Notes) > 0 {
		text += "; " + strings.Join(msg.done.Notes, "; ")
	}
	return notice{text, good}
}
