// SPDX-License-Identifier: Apache-2.0

package report

import (
	"io"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Language is the language of a report's texts, as BCP 47 names it. Names of
// subjects and programs, commands and figures are the same in all of them.
type Language string

// The languages of reports.
const (
	English Language = "en"
	Korean  Language = "ko"
)

// HTML writes the report as one page that needs nothing else; see [HTML].
func (l Language) HTML(w io.Writer, run *results.Run) error { return writeHTML(w, l.words(), run) }

// Markdown writes the report as GitHub-flavoured Markdown; see [Markdown].
func (l Language) Markdown(w io.Writer, run *results.Run) error {
	return writeMarkdown(w, l.words(), run)
}

// Terminal writes the report as text for a terminal; see [Terminal].
func (l Language) Terminal(w io.Writer, run *results.Run) error {
	return writeTerminal(w, l.words(), run)
}

// Chart writes the run's main result as a picture; see [Chart].
func (l Language) Chart(w io.Writer, run *results.Run) error { return writeChart(w, l.words(), run) }

// words returns the translator of this package's texts into the language.
func (l Language) words() *translator {
	if l == Korean {
		return koreanTexts()
	}
	return &translator{language: string(English)}
}

// Format is a form of the report.
type Format string

// The forms of reports.
const (
	FormatTerminal Format = "text"
	FormatMarkdown Format = "markdown"
	FormatHTML     Format = "html"
)

// HTML writes the report as one page that needs nothing else: styles, script
// and charts are inside, and its content security policy forbids to load
// anything. The error is w's.
func HTML(w io.Writer, run *results.Run) error { return English.HTML(w, run) }

// Markdown writes the report as GitHub-flavoured Markdown. The error is w's.
func Markdown(w io.Writer, run *results.Run) error { return English.Markdown(w, run) }

// Terminal writes the report as text for a terminal. The error is w's.
func Terminal(w io.Writer, run *results.Run) error { return English.Terminal(w, run) }

// Chart writes the run's main result as one SVG picture that follows the reader's light or dark scheme by itself. It
// shows the run's first load. The error means that no valid trial has a figure to draw, or is w's.
func Chart(w io.Writer, run *results.Run) error { return English.Chart(w, run) }
