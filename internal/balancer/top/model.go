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

// Model is the state of the screen. Only its commands do I/O, and time comes with messages.
type Model struct {
	// ctx ends the waits of commands.
	ctx           context.Context
	options       Options
	glyphs        glyphs
	width, height int
	// now is when the latest message came that bears a time.
	now time.Time

	history *history
	figures figures
	// known: there was a reading, and figures are those of the last one, at readAt.
	known  bool
	readAt time.Time
	away   absence

	view   View
	places map[View]place
	// table and order are the view's rows, made from the figures, and their order.
	table *table
	order []int

	// pager, question and typing are shown over the table; nil: none is. typing is the filter.
	pager    *pager
	question *question
	typing   *input
	// notice is the result of the last operation, or why a key did nothing.
	notice notice
}

// absence is a time in which the balancer does not answer.
type absence struct {
	// since is when the first reading failed; zero: it answers. asked is when the present one began; zero: none is
	// under way.
	since, asked time.Time
	err          error
}

// place is where the user is in a view.
type place struct {
	sort   sorting
	filter string
	// selected is the id of the row with the cursor, and cursor its place in the order.
	selected string
	cursor   int
	// offset is the first row that is shown.
	offset int
}

// notice is a line for the user.
type notice struct {
	text string
	tone tone
}

// The messages of commands.
type (
	// readingMsg is a status that was read, at a time, or why it was not.
	readingMsg struct {
		status *ops.Status
		err    error
		at     time.Time
		took   time.Duration
	}
	// dueMsg asks for the next reading.
	dueMsg struct{}
	// clockMsg is the time, each second.
	clockMsg struct{ now time.Time }
	// operatedMsg is the result of an operation.
	operatedMsg struct {
		done *ops.Operation
		err  error
	}
	// describedMsg is a description for the pager that asked for it.
	describedMsg struct {
		id, text string
		err      error
	}
)

const (
	// readBound is how long a reading may take, and retry the time from one that failed to the next.
	readBound = 15 * time.Second
	retry     = time.Second
	// idleShare bounds the work that watching gives to the balancer: readings pause for so many times their own
	// duration.
	idleShare = 49
	// slowest bounds that pause.
	slowest = 10 * time.Second
	// silent is how long a reading may take before the screen says so.
	silent = 2 * time.Second
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

// pause is the time from the end of a reading that took so long to the next one.
func (m Model) pause(took time.Duration) time.Duration {
	return min(max(m.options.Interval-took, idleShare*took), max(slowest, m.options.Interval))
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

// theirs is the present time by the balancer's clock, by which all times of a status are: another machine's clock may
// differ from this one's, and each may be set meanwhile.
func (m *Model) theirs() time.Time {
	if !m.known {
		return m.now
	}
	return m.figures.status.Taken(m.readAt).Add(m.now.Sub(m.readAt))
}

// at changes the place in the present view.
func (m *Model) at(change func(*place)) {
	p := m.places[m.view]
	change(&p)
	m.places[m.view] = p
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

// selected returns the number of the row with the cursor; false: there is none.
func (m *Model) selected() (int, bool) {
	p := m.places[m.view]
	if p.cursor >= len(m.order) {
		return 0, false
	}
	return m.order[p.cursor], true
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
