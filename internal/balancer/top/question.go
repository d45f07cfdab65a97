// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// askFor asks whether an operation on the selected backend is meant.
func askFor(verb ops.Verb) func(Model) (tea.Model, tea.Cmd) {
	return func(m Model) (tea.Model, tea.Cmd) {
		if m.options.ReadOnly {
			m.notice = notice{"nothing is changed with --read-only", warn}
			return m, nil
		}
		q := &question{order: ops.Order{Verb: verb}}
		switch verb {
		case ops.Undo:
			if len(m.figures.status.Operations.History) == 0 {
				m.notice = notice{"there is no operation that can be taken back", warn}
				return m, nil
			}
		case ops.Drain:
			q.input, q.label = &input{}, "Take it out after (such as 10m; empty: never)"
		case ops.Weight:
			q.input, q.label = &input{}, "Weight (0 to 65535)"
		}
		if verb != ops.Undo {
			var ok bool
			if q.order.Service, q.order.Backend, ok = m.target(); !ok {
				m.notice = notice{"select a backend first: press " + viewKey(Backends), warn}
				return m, nil
			}
		}
		m.question = q
		return m, nil
	}
}

// target names the backend that is selected or described; false: none is.
func (m *Model) target() (service, backend string, ok bool) {
	if m.pager != nil {
		return m.pager.service, m.pager.backend, m.pager.backend != ""
	}
	i, ok := m.selected()
	switch {
	case ok && m.view == Backends:
		return m.figures.backends[i].Service, m.figures.backends[i].Name, true
	case ok && m.view == Changes:
		target := m.figures.status.Operations.InForce[i].Target
		return target.Service, target.Backend, true
	}
	return "", "", false
}

// handleAnswer handles a key of the user's answer: Enter is yes, Esc no.
func (m Model) handleAnswer(key, text string) (tea.Model, tea.Cmd) {
	q := *m.question
	m.question = &q
	if q.input != nil {
		copied := *q.input
		q.input = &copied
	}
	switch {
	case key == "esc" || q.input == nil && (key == "n" || key == "q"):
		m.question, m.notice = nil, notice{"nothing was changed", plain}
	case key == "enter" || q.input == nil && key == "y":
		if q.inputFault = q.complete(); q.inputFault != "" {
			return m, nil
		}
		m.question, m.notice = nil, notice{"asked for: " + orderText(q.order), plain}
		return m, m.startOperation(q.order)
	case q.input != nil:
		q.input.handleKey(key, m.glyphs.clean(text))
		q.inputFault = ""
	}
	return m, nil
}

// complete takes the input into the order, and returns its fault; "" if there is none.
func (q *question) complete() string {
	if q.input == nil {
		return ""
	}
	text := strings.TrimSpace(q.input.text)
	switch q.order.Verb {
	case ops.Weight:
		weight, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return fmt.Sprintf("%q is no weight: type a number from 0 to 65535", text)
		}
		q.order.Weight = int64(weight)
	case ops.Drain:
		if text == "" {
			q.order.Deadline = 0
			return ""
		}
		deadline, err := time.ParseDuration(text)
		if err != nil || deadline <= 0 {
			return fmt.Sprintf("%q is no time: type one such as 90s, 10m or 2h, or nothing", text)
		}
		q.order.Deadline = deadline
	}
	return ""
}

// startOperation starts the operation.
func (m Model) startOperation(order ops.Order) tea.Cmd {
	ctx, balancer := m.ctx, m.options.Balancer
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, 2*readTimeout)
		defer cancel()
		done, err := balancer.Operate(ctx, order)
		return operatedMsg{done, err}
	}
}

// orderText names an order.
func orderText(o ops.Order) string {
	text := string(o.Verb)
	if o.Verb != ops.Undo {
		text += " " + o.Service + "/" + o.Backend
	}
	if o.Verb == ops.Weight {
		text += fmt.Sprintf(" %d", o.Weight)
	}
	if o.Deadline > 0 {
		text += ", out after " + o.Deadline.String()
	}
	return text
}

// operationText names an operation that was done.
func operationText(o *ops.Operation) string {
	var names []string
	for _, t := range o.Targets {
		names = append(names, t.String())
	}
	text := string(o.Verb) + " " + strings.Join(names, ", ")
	if o.Weight != nil {
		text += fmt.Sprintf(" %d", *o.Weight)
	}
	return text
}

// consequences lists the effects that an operation will have, by the present figures.
func (f *snapshotFigures) consequences(o ops.Order) []string {
	if o.Verb == ops.Undo {
		if len(f.status.Operations.History) == 0 {
			return []string{"There is no operation that can be taken back."}
		}
		last := &f.status.Operations.History[0]
		return []string{
			fmt.Sprintf("Take back what %s did at %s: %s.", last.By, last.At.Local().Format(time.DateTime),
				operationText(last)),
		}
	}
	row, others := f.backendOf(o)
	if row == nil {
		return []string{fmt.Sprintf("%s/%s is not there any more.", o.Service, o.Backend)}
	}
	flows := "the flows that it has"
	if row.service.Tracked {
		flows = fmt.Sprintf("the %s active flows that it has", formatCount(row.Active))
	}
	left := fmt.Sprintf("New flows of %s go to %d other backends.", o.Service, others)
	if others == 0 {
		left = fmt.Sprintf(
			"No other backend of %s takes new flows: the balancer may refuse this, and new clients are not served.",
			o.Service,
		)
	}
	const until = "It holds until it is enabled or undone, and ends when the daemon is stopped."
	switch o.Verb {
	case ops.Drain:
		return []string{
			fmt.Sprintf("Drain %s/%s (%s): it keeps %s, and gets no new one.", o.Service, o.Backend,
				row.Address, flows),
			left,
			until,
		}
	case ops.Disable:
		return []string{
			fmt.Sprintf("Disable %s/%s (%s): it is out at once, and %s end.", o.Service, o.Backend, row.Address, flows),
			left,
			until,
		}
	case ops.Enable:
		return []string{
			fmt.Sprintf("Enable %s/%s (%s), which is %s now.", o.Service, o.Backend, row.Address, row.State),
			enabledConsequence(row),
		}
	}
	return []string{
		fmt.Sprintf(
			"Give %s/%s (%s) another weight than %d, by which it gets %s of the new flows.",
			o.Service,
			o.Backend,
			row.Address,
			row.Weight,
			formatPercent(row.Due),
		),
		"Flows that it has stay. 0 takes no new flow. It ends when the daemon is stopped.",
	}
}

// backendOf returns the row of an order's backend, nil if it is gone, and how many others of its service are up.
func (f *snapshotFigures) backendOf(o ops.Order) (row *backendRow, others int) {
	for i := range f.backends {
		b := &f.backends[i]
		switch {
		case b.Service != o.Service:
		case b.Name == o.Backend:
			row = b
		case b.State == lb.Up:
			others++
		}
	}
	return row, others
}

// enabledConsequence says when a backend takes new flows once it is enabled.
func enabledConsequence(row *backendRow) string {
	switch {
	case row.backend.Health != nil && row.backend.Health.State == lb.Failing:
		return "It takes new flows when its health checks pass again."
	case row.State == lb.NoMAC || row.State == lb.NoRoute:
		return "It takes new flows when it is reached."
	}
	return "It takes new flows at once."
}
