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
		figures: figures{status: &ops.Status{}},
	}
	m.places[Drops] = place{sort: sorting{column: "PKT/S"}}
	m.refresh()
	if options.Sort != "" {
		title, err := m.table.titled(options.Sort)
		if err != nil {
			return Model{}, err
		}
		m.at(func(p *place) { p.sort = m.table.sorted(title) })
	}
	m.at(func(p *place) { p.filter = options.Filter })
	m.refresh()
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
func (m Model) Init() tea.Cmd { return tea.Batch(m.read(), m.clock()) }

// Update takes a message.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.refresh()
	case clockMsg:
		m.now = msg.now
		m.refresh()
		return m, m.clock()
	case dueMsg:
		m.away.asked = m.now
		return m, m.read()
	case readingMsg:
		return m.take(msg)
	case describedMsg:
		m.describe(msg)
	case operatedMsg:
		m.notice = noticeOf(msg)
	case tea.PasteMsg:
		if m.typing != nil {
			m.typing.insert(m.glyphs.clean(msg.Content))
			m.at(func(p *place) { p.filter = m.typing.text })
			m.refresh()
		}
	case tea.KeyPressMsg:
		return m.press(msg)
	}
	return m, nil
}

// take shows a reading, and has the next one come.
func (m Model) take(msg readingMsg) (tea.Model, tea.Cmd) {
	m.now, m.away.asked = msg.at, time.Time{}
	if msg.err != nil {
		if m.away.since.IsZero() {
			m.away.since = msg.at
		}
		m.away.err = msg.err
		return m, later(retry)
	}
	if !m.away.since.IsZero() && m.known {
		m.notice = notice{fmt.Sprintf("the balancer answers again, after %s", age(msg.at.Sub(m.away.since))), good}
	}
	m.away = absence{}
	m.history.add(msg.status, msg.at)
	m.figures, m.known, m.readAt = figuresOf(msg.status, m.history, msg.at), true, msg.at
	m.refresh()
	commands := []tea.Cmd{later(m.pause(msg.took))}
	if m.pager != nil && m.pager.live && msg.at.Sub(m.pager.asked) >= describeEvery {
		m.pager.asked = msg.at
		commands = append(commands, m.ask(*m.pager))
	}
	return m, tea.Batch(commands...)
}

// read asks for a status.
func (m Model) read() tea.Cmd {
	ctx, balancer, now := m.ctx, m.options.Balancer, m.options.Now
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, readBound)
		defer cancel()
		began := now()
		status, err := balancer.Status(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", readBound)
		}
		at := now()
		return readingMsg{status, err, at, at.Sub(began)}
	}
}

// later has the next reading come after a pause.
func later(pause time.Duration) tea.Cmd {
	return tea.Tick(pause, func(time.Time) tea.Msg { return dueMsg{} })
}

// clock has the time come in a second.
func (m Model) clock() tea.Cmd {
	now := m.options.Now
	return tea.Tick(time.Second, func(time.Time) tea.Msg { return clockMsg{now()} })
}

// refresh makes the table of the present view anew. The cursor stays on its row, wherever that has come to be; where
// the
// row has gone, it stays in its place.
func (m *Model) refresh() {
	m.table = m.figures.table(m.view, m.options.All, m.theirs())
	p := m.places[m.view]
	m.order = m.table.arrange(p.sort, p.filter)
	if at := slices.IndexFunc(m.order, func(i int) bool { return m.table.id(i) == p.selected }); at >= 0 {
		p.cursor = at
	}
	m.places[m.view] = p
	m.move(0)
}

// move moves the cursor by rows, and shows it.
func (m *Model) move(by int) {
	m.at(func(p *place) {
		p.cursor = min(max(p.cursor+by, 0), max(len(m.order)-1, 0))
		p.selected = ""
		if len(m.order) > 0 {
			p.selected = m.table.id(m.order[p.cursor])
		}
		room := max(m.room(), 1)
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
