// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// The least screen that a table is drawn on.
const (
	minWidth  = 40
	minHeight = 8
)

// The looks. Terminals without colours show the words that say the same; bubbletea leaves out the colours where
// NO_COLOR is set.
var (
	titleStyle    = lipgloss.NewStyle().Bold(true)
	headStyle     = lipgloss.NewStyle().Underline(true)
	selectedStyle = lipgloss.NewStyle().Reverse(true)
	toneStyles    = map[tone]lipgloss.Style{
		plain: lipgloss.NewStyle(),
		good:  lipgloss.NewStyle().Foreground(lipgloss.Color("2")),
		warn:  lipgloss.NewStyle().Foreground(lipgloss.Color("3")),
		bad:   lipgloss.NewStyle().Foreground(lipgloss.Color("1")).Bold(true),
	}
)

// View draws the screen.
func (m Model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines returns the lines of the screen, as many as it has.
func (m Model) lines() []string {
	if m.width == 0 || m.height == 0 {
		return nil
	}
	if m.width < minWidth || m.height < minHeight {
		return m.tooSmall()
	}
	lines := m.headLines()
	foot := m.footLines()
	switch {
	case m.pager != nil:
		lines = append(lines, m.pagerLines()...)
	case !m.known:
		lines = append(lines, m.plain("waiting for the balancer's first answer"))
	default:
		lines = append(lines, m.tableLines()...)
	}
	for len(lines) < m.height-len(foot) {
		lines = append(lines, "")
	}
	return append(lines[:m.height-len(foot)], foot...)
}

// tooSmall returns the text for a terminal that is too small.
func (m Model) tooSmall() []string {
	text := fmt.Sprintf("too small: %dx%d; jeoul top needs %dx%d. q quits", m.width, m.height, minWidth, minHeight)
	lines := strings.Split(ansi.Wrap(text, m.width, ""), "\n")
	return lines[:min(len(lines), m.height)]
}

// plain returns a text as a line of the screen.
func (m Model) plain(text string) string {
	return strings.TrimRight(m.glyphs.fit(m.glyphs.clean(text), m.width, false), " ")
}

// headLines are the lines above the table.
func (m Model) headLines() []string {
	lines := []string{titleStyle.Render(m.titleLine()), m.plain(m.summary()), m.tabs()}
	if text, tone := m.banner(); text != "" {
		lines = append(lines, toneStyles[tone].Render(m.plain("! "+text)))
	}
	return lines
}

// titleLine names the balancer and the time.
func (m Model) titleLine() string {
	left := "jeoul top  " + m.options.At
	if s := m.figures.status; m.known {
		left += fmt.Sprintf("  up %s  %s", formatSince(s.Started, m.balancerTime()), string(s.Hook.Name))
		if s.Hook.Generic {
			left += " (generic)"
		}
		if s.Interface != "" {
			left += " on " + s.Interface
		}
	}
	if m.options.ReadOnly {
		left += "  read-only"
	}
	right := " " + m.now.Local().Format(time.TimeOnly)
	return m.glyphs.fit(m.glyphs.clean(left), m.width-len(right), false) + right
}

// summary adds up all services.
func (m Model) summary() string {
	f := &m.figures
	if !m.known {
		return ""
	}
	rate := func(value float64) string {
		if !f.total.Known {
			return "-"
		}
		return formatSI(value)
	}
	up, all := 0, 0
	for i := range f.services {
		up, all = up+f.services[i].BackendsUp, all+f.services[i].Backends
	}
	text := fmt.Sprintf(
		"new %s/s  packets %s/s  in %sbit/s",
		rate(f.total.Connections),
		rate(f.total.Packets),
		rate(f.total.Bits),
	)
	if f.total.ReturnedBits > 0 {
		text += fmt.Sprintf("  back %sbit/s", formatSI(f.total.ReturnedBits))
	}
	text += fmt.Sprintf("  dropped %s/s  backends up %d/%d", formatSI(f.dropped), up, all)
	if t := f.status.Flows; t != nil && t.ProvenLimit > 0 {
		text += fmt.Sprintf("  flows %s", formatPercent(float64(t.Proven)/float64(t.ProvenLimit)))
	}
	return text
}

// tabs name the views and their keys.
func (m Model) tabs() string {
	var parts []string
	for _, v := range Views {
		text := viewKey(v) + " " + string(v)
		if v == m.view {
			text = "[" + text + "]"
		}
		parts = append(parts, text)
	}
	return m.plain(strings.Join(parts, "  "))
}

// banner is the fault that needs a person's attention now.
func (m Model) banner() (string, tone) {
	switch {
	case !m.outage.since.IsZero():
		text := fmt.Sprintf(
			"no answer since %s (%s): %v",
			m.outage.since.Local().Format(time.TimeOnly),
			formatSince(m.outage.since, m.now),
			m.outage.err,
		)
		if m.known {
			text = fmt.Sprintf(
				"no answer since %s (%s), figures of %s: %v",
				m.outage.since.Local().Format(time.TimeOnly),
				formatSince(m.outage.since, m.now),
				m.readAt.Local().Format(time.TimeOnly),
				m.outage.err,
			)
		}
		return text, bad
	case !m.outage.requested.IsZero() && m.now.Sub(m.outage.requested) >= slowAfter:
		return fmt.Sprintf("asked at %s, and not answered yet", m.outage.requested.Local().Format(time.TimeOnly)), warn
	}
	problems := m.figures.status.Problems
	switch len(problems) {
	case 0:
		return "", plain
	case 1:
		return problems[0], warn
	}
	return fmt.Sprintf("(1 of %d) %s", len(problems), problems[0]), warn
}

// tableRows is how many rows of the table there is room for.
func (m *Model) tableRows() int { return m.pagerRows() - 1 }

// pagerRows is how many lines there are between head and foot, less a title.
func (m *Model) pagerRows() int { return m.height - len(m.headLines()) - len(m.footLines()) }

// tableLines are the titles, and the rows that there is room for.
func (m Model) tableLines() []string {
	p := m.places[m.view]
	room := max(m.tableRows(), 0)
	shown := m.order[min(p.offset, len(m.order)):min(p.offset+room, len(m.order))]
	if len(m.order) == 0 {
		text := m.table.empty
		if p.filter != "" {
			text = fmt.Sprintf("no row contains %q; Esc shows all", p.filter)
		}
		return []string{m.plain(text)}
	}
	const mark = 2 // columns before the first
	l := m.table.resolve(m.glyphs, shown, m.width-mark)
	lines := []string{headStyle.Render(m.glyphs.fit("  "+l.titles(m.glyphs, p.sort), m.width, false))}
	for n, i := range shown {
		lines = append(lines, l.line(m.glyphs, i, p.offset+n == p.cursor, m.width))
	}
	return lines
}

// titles are the titles of the columns; the one that rows are sorted by has a mark.
func (l layout) titles(g glyphs, by sorting) string {
	var parts []string
	for n, c := range l.columns {
		title := c.title
		if title == by.column {
			title += g.arrow(by.up)
		}
		parts = append(parts, g.fit(title, l.widths[n], c.right))
	}
	return strings.Join(parts, strings.Repeat(" ", gap))
}

// line is a row of the table.
func (l layout) line(g glyphs, i int, selected bool, width int) string {
	var parts []string
	for n, c := range l.columns {
		if c.trend != nil {
			parts = append(parts, g.spark(c.trend(i), l.widths[n]))
			continue
		}
		text := g.fit(g.clean(c.text(i)), l.widths[n], c.right)
		if c.tone != nil && !selected {
			text = toneStyles[c.tone(i)].Render(text)
		}
		parts = append(parts, text)
	}
	line := strings.Join(parts, strings.Repeat(" ", gap))
	if selected {
		return selectedStyle.Render(g.fit(g.cursor+" "+line, width, false))
	}
	return "  " + line
}

// pagerLines are the title of a text, and as many of its lines as there is room for.
func (m Model) pagerLines() []string {
	p := m.pager
	end := min(p.offset+m.pagerRows(), len(p.lines))
	title := p.title
	if p.offset > 0 || end < len(p.lines) {
		title += fmt.Sprintf("  lines %d to %d of %d", p.offset+1, end, len(p.lines))
	}
	var lines []string
	for _, line := range p.lines[min(p.offset, end):end] {
		lines = append(lines, m.plain(line))
	}
	return slices.Concat([]string{titleStyle.Render(m.plain(title))}, lines)
}

// footLines are the lines below the table.
func (m Model) footLines() []string {
	switch {
	case m.question != nil:
		return m.questionLines()
	case m.typing != nil:
		return []string{m.plain("/" + m.typing.text + "_   Enter: keep  Esc: all rows")}
	case m.notice.text != "":
		return m.noticeLines()
	case m.pager != nil:
		return []string{m.plain("Esc: back  Up, Down, PgUp, PgDn: scroll")}
	}
	var words []string
	for _, b := range bindings() {
		if b.short != "" {
			words = append(words, b.name+" "+b.short)
		}
	}
	text := strings.Join(words, "  ")
	if p := m.places[m.view]; p.filter != "" {
		text = fmt.Sprintf("%d of %d rows contain %q  %s", len(m.order), m.table.rows, p.filter, text)
	}
	return []string{m.plain(text)}
}

// noticeLines are all of the notice, if there is room for it.
func (m Model) noticeLines() (lines []string) {
	for line := range strings.SplitSeq(ansi.Wrap(m.glyphs.clean(m.notice.text), m.width, ""), "\n") {
		lines = append(lines, toneStyles[m.notice.tone].Render(m.plain(line)))
	}
	return lines[:min(len(lines), m.height/3)]
}

// questionLines list the effects of an operation, and how to answer.
func (m Model) questionLines() []string {
	q := m.question
	lines := []string{strings.Repeat(m.glyphs.line, m.width)}
	for _, sentence := range m.figures.consequences(q.order) {
		for line := range strings.SplitSeq(ansi.Wrap(m.glyphs.clean(sentence), m.width, ""), "\n") {
			lines = append(lines, m.plain(line))
		}
	}
	if q.input != nil {
		lines = append(lines, titleStyle.Render(m.plain(q.label+": "+q.input.text+"_")))
	}
	if q.inputFault != "" {
		lines = append(lines, toneStyles[bad].Render(m.plain(q.inputFault)))
	}
	lines = append(lines, titleStyle.Render(m.plain(fmt.Sprintf("Enter: %s   Esc: leave it as it is", q.order.Verb))))
	return lines[max(len(lines)-(m.height-len(m.headLines())-1), 0):]
}
