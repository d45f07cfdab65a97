// SPDX-License-Identifier: Apache-2.0

package cmdkit

import (
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// OutputFlag is the form of a command's output: for a person, or for a program. `get` has more forms, and `report`
// others; -o is a form everywhere.
type OutputFlag struct {
	Output string `name:"output" short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"Output format: text or json (${default})."`
}

// JSON reports whether the output is for a program.
func (o OutputFlag) JSON() bool { return o.Output == "json" }

// NewTable returns a table without lines, which suits both a terminal and grep.
func NewTable(w io.Writer, columns ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Box.PaddingLeft, t.Style().Box.PaddingRight = "", "  "
	t.Style().Format.Header = text.FormatUpper
	t.SuppressTrailingSpaces()
	t.AppendHeader(columns)
	return t
}

// RightAlign aligns columns of figures to the right.
func RightAlign(t table.Writer, columns ...string) {
	var configs []table.ColumnConfig
	for _, name := range columns {
		configs = append(configs, table.ColumnConfig{Name: name, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
}

// Count formats 1234567 as 1,234,567.
func Count(n uint64) string { return message.NewPrinter(language.English).Sprintf("%d", n) }

// OrDash returns a text, or a dash if it is empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
