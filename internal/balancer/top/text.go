// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// glyphs are the characters that a terminal shows.
type glyphs struct {
	// ascii: nothing else is shown.
	ascii bool
	// levels are the characters of a sparkline, from the lowest. cursor marks the selected row, cut a text that is cut,
	// and line draws a rule.
	levels            []rune
	cursor, cut, line string
}

func glyphsOf(ascii bool) glyphs {
	if ascii {
		return glyphs{true, []rune("_.-:=+*#"), ">", "~", "-"}
	}
	return glyphs{false, []rune("▁▂▃▄▅▆▇█"), "▸", "…", "─"}
}

// namesUTF8 reports whether a locale, such as en_US.UTF-8, encodes text in UTF-8.
func namesUTF8(locale string) bool {
	locale = strings.ToLower(locale)
	return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}

// clean replaces everything in a text that a terminal does not print as one character in its place: control characters,
// escape sequences, invisible ones, those that change the direction of writing, and invalid UTF-8.
func (g glyphs) clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= ' ' && r <= '~':
			return r
		case g.ascii || r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, text)
}

// fit returns a text in exactly so many columns.
func (g glyphs) fit(text string, width int, right bool) string {
	if ansi.StringWidth(text) > width {
		text = ansi.Truncate(text, width, g.cut)
	}
	padding := strings.Repeat(" ", max(width-ansi.StringWidth(text), 0))
	if right {
		return padding + text
	}
	return text + padding
}

// spark draws the last values as a line of so many columns, scaled to the largest of them; 0 has the lowest level.
func (g glyphs) spark(values []float64, width int) string {
	values = values[max(len(values)-width, 0):]
	largest := 0.0
	for _, v := range values {
		largest = max(largest, v)
	}
	line := []rune(strings.Repeat(" ", width-len(values)))
	top := float64(len(g.levels) - 1)
	for _, v := range values {
		level := 0
		if v > 0 {
			level = max(1, int(math.Round(v/largest*top)))
		}
		line = append(line, g.levels[level])
	}
	return string(line)
}

// formatSI writes a figure in at most six columns: 0.5, 17, 999, 1.23k, 45.6M.
func formatSI(value float64) string {
	unit := ""
	for _, larger := range []string{"k", "M", "G", "T", "P"} {
		if math.Abs(value) < 999.5 {
			break
		}
		value, unit = value/1000, larger
	}
	switch {
	case unit == "" && value != math.Trunc(value) && value < 9.95:
		return fmt.Sprintf("%.1f", value)
	case unit == "" || value >= 99.95:
		return fmt.Sprintf("%.0f%s", value, unit)
	case value >= 9.995:
		return fmt.Sprintf("%.1f%s", value, unit)
	}
	return fmt.Sprintf("%.2f%s", value, unit)
}

// formatCount writes 1234567 as 1,234,567.
func formatCount[T ~uint32 | ~uint64 | ~int](n T) string {
	return message.NewPrinter(language.English).Sprintf("%d", n)
}

// formatPercent writes a share of 1.
func formatPercent(share float64) string {
	if share > 0 && share < 0.0995 {
		return fmt.Sprintf("%.1f%%", 100*share)
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}

// formatAge writes how long something lasts: 12s, 5m, 3h, 12d.
func formatAge(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// formatSince writes how long ago something began; "-" where that is unknown.
func formatSince(began, now time.Time) string {
	if began.IsZero() {
		return "-"
	}
	return formatAge(now.Sub(began))
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// width is how many columns a text takes as it is shown.
func (g glyphs) width(text string) int { return ansi.StringWidth(g.clean(text)) }

// arrow marks the column that rows are sorted by.
func (g glyphs) arrow(up bool) string {
	switch {
	case g.ascii && up:
		return "^"
	case g.ascii:
		return "v"
	case up:
		return "▲"
	}
	return "▼"
}
