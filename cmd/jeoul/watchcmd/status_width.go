// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// statusWidth is the greatest width of a table of backends, in columns of a terminal, unless all columns are asked for.
const statusWidth = 120

// droppable are the columns that a table of backends omits if it is too wide, in that order.
var droppable = []string{
	"mtu", "mac", "bytes returned", "answered", "interface", "flows", "neighbour", "from", "via", "ports", "returned",
}

// writeBackends prints the table of a service's backends: all columns if wide is set, otherwise as many as fit. It
// names the columns that it leaves out.
func writeBackends(w io.Writer, backends []ops.Backend, columns []column, wide bool) {
	var left []string
	if !wide {
		columns, left = fitColumns(backends, columns)
	}
	var head []any
	var right []string
	for _, c := range columns {
		head = append(head, c.name)
		if c.right {
			right = append(right, c.name)
		}
	}
	t := cmdkit.NewTable(w, head...)
	cmdkit.RightAlign(t, right...)
	for _, b := range backends {
		var row table.Row
		for _, c := range columns {
			row = append(row, c.value(b))
		}
		t.AppendRow(row)
	}
	t.Render()
	if len(left) > 0 {
		fmt.Fprintf(w, "  -o wide also shows: %s\n", strings.Join(left, ", "))
	}
}

// fitColumns returns the columns that are shown, and the names of those that are left out for lack of room.
func fitColumns(backends []ops.Backend, columns []column) (shown []column, left []string) {
	const padding = 2 // between columns
	shown = slices.Clone(columns)
	widths, total := map[string]int{}, -padding
	for _, c := range columns {
		width := len(c.name)
		for _, b := range backends {
			width = max(width, text.StringWidthWithoutEscSequences(fmt.Sprint(c.value(b))))
		}
		widths[c.name] = width
		total += width + padding
	}
	for _, name := range droppable {
		width, there := widths[name]
		if !there || total <= statusWidth {
			continue
		}
		shown = slices.DeleteFunc(shown, func(c column) bool { return c.name == name })
		left = append(left, name)
		total -= width + padding
	}
	return shown, left
}
