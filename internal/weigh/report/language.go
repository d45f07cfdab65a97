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
func (l Language) HTML(w io.Writer, run *results.Run) error { return writeHTML(w, l, run) }

// Markdown writes the report as GitHub-flavoured Markdown; see [Markdown].
func (l Language) Markdown(w io.Writer, run *results.Run) error { return writeMarkdown(w, l, run) }

// Terminal writes the report as text for a terminal; see [Terminal].
func (l Language) Terminal(w io.Writer, run *results.Run) error { return writeTerminal(w, l, run) }

// Chart writes the run's main result as a picture; see [Chart].
func (l Language) Chart(w io.Writer, run *results.Run) error { return writeChart(w, l, run) }

// words returns what turns the texts of this package into the language's.
func (l Language) words() *translator {
	if l == Korean {
		return koreanTexts()
	}
	return &translator{}
}

// Format is a form of the report.
type Format string

// The forms of reports.
const (
	FormatTerminal Format = "text"
	FormatMarkdown Format = "markdown"
	FormatHTML     Format = "html"
)
