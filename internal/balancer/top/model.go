// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
	figures snapshotFigures
	// known: there was a reading, and figures are those of the last one, at readAt.
	known  bool
	readAt time.Time
	outage outage

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

// outage is a time in which the balancer does not answer.
type outage struct {
	// since is when the first reading failed; zero: it answers. asked is when the present one began; zero: none is
	// under way.
	since, requested time.Time
	err              error
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
	// readTimeout is how long a reading may take, and retryInterval the time from one that failed to the next.
	readTimeout   = 15 * time.Second
	retryInterval = time.Second
	// idleFactor bounds the work that watching gives to the balancer: readings pause for so many times their own
	// duration.
	idleFactor = 49
	// maxPause bounds that pause.
	maxPause = 10 * time.Second
	// slowAfter is how long a reading may take before the screen says so.
	slowAfter = 2 * time.Second
)

// pause is the time from the end of a reading that took so long to the next one.
func (m Model) pause(took time.Duration) time.Duration {
	return min(max(m.options.Interval-took, idleFactor*took), max(maxPause, m.options.Interval))
}

// balancerTime is the present time by the balancer's clock, by which all times of a status are: another machine's clock
// may differ from this one's, and each may be set meanwhile.
func (m *Model) balancerTime() time.Time {
	if !m.known {
		return m.now
	}
	return m.figures.status.Taken(m.readAt).Add(m.now.Sub(m.readAt))
}

// placeInView changes the place in the present view.
func (m *Model) placeInView(change func(*place)) {
	p := m.places[m.view]
	change(&p)
	m.places[m.view] = p
}

// selected returns the number of the row with the cursor; false: there is none.
func (m *Model) selected() (int, bool) {
	p := m.places[m.view]
	if p.cursor >= len(m.order) {
		return 0, false
	}
	return m.order[p.cursor], true
}

// input is a line that the user types.
type input struct{ text string }

// insert adds a text.
func (i *input) insert(text string) {
	const most = 200
	if len(i.text)+len(text) <= most {
		i.text += text
	}
}

// handleKey handles a key, and the text that it stands for.
func (i *input) handleKey(key, text string) {
	switch key {
	case "backspace", "ctrl+h":
		runes := []rune(i.text)
		i.text = string(runes[:max(len(runes)-1, 0)])
	case "ctrl+u":
		i.text = ""
	case "ctrl+w":
		i.text = strings.TrimRight(i.text, " ")
		i.text = i.text[:strings.LastIndex(i.text, " ")+1]
	default:
		i.insert(text)
	}
}

// question asks whether an operation is meant.
type question struct {
	order ops.Order
	// input is a further value that the operation needs, asked for by label; nil: it needs none.
	input *input
	label string
	// inputFault names the fault in the input.
	inputFault string
}

// pager shows a text over the table.
type pager struct {
	title  string
	lines  []string
	offset int
	// live: the text is a description of a service, or of a backend of it, that is asked for again and again. asked is
	// when
	// it was the last time.
	live             bool
	service, backend string
	asked            time.Time
}

// id identifies the description.
func (p *pager) id() string { return p.service + "\x00" + p.backend }

// viewKey is the key of a view.
func viewKey(v View) string { return fmt.Sprint(slices.Index(Views, v) + 1) }
