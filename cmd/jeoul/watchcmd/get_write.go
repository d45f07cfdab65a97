// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
)

// getWriter prints objects of a kind.
type getWriter[T any] struct {
	to     io.Writer
	kind   kind[T]
	format string
	// widths are the widths of the columns, from the rows so far.
	widths []int
}

// list prints the objects found. For a program they are a list, but an object that the only argument names is printed
// alone.
func (w *getWriter[T]) list(found []T, arguments []string) error {
	var all any = found
	if len(arguments) == 1 && len(found) == 1 && w.kind.name(found[0]) == arguments[0] {
		all = found[0]
	}
	switch w.format {
	case "json":
		encoder := json.NewEncoder(w.to)
		encoder.SetIndent("", "  ")
		return encoder.Encode(all)
	case "yaml":
		return writeYAML(w.to, all)
	case "name":
		for _, one := range found {
			fmt.Fprintln(w.to, w.kind.name(one))
		}
		return nil
	}
	if len(found) == 0 {
		_, err := fmt.Fprintf(os.Stderr, "no %ss\n", w.kind.noun)
		return err
	}
	return w.table(found)
}

// shown returns the columns of the format.
func (w *getWriter[T]) shown() (columns []getColumn[T]) {
	for _, c := range w.kind.columns {
		if !c.wide || w.format == "wide" {
			columns = append(columns, c)
		}
	}
	return columns
}

// table prints objects as a table, with a header.
func (w *getWriter[T]) table(found []T) error {
	columns := w.shown()
	rows := [][]string{nil}
	for _, c := range columns {
		rows[0] = append(rows[0], strings.ToUpper(c.name))
	}
	for _, one := range found {
		rows = append(rows, cellsOf(columns, one))
	}
	w.widths = make([]int, len(columns))
	for _, row := range rows {
		w.growWidths(row)
	}
	for _, row := range rows {
		if err := w.row(columns, row); err != nil {
			return err
		}
	}
	return nil
}

func cellsOf[T any](columns []getColumn[T], one T) (cells []string) {
	for _, c := range columns {
		cells = append(cells, cmdkit.OneLine(fmt.Sprint(c.value(one))))
	}
	return cells
}

// growWidths widens the columns to fit a row.
func (w *getWriter[T]) growWidths(row []string) {
	for i, cell := range row {
		w.widths[i] = max(w.widths[i], text.StringWidthWithoutEscSequences(cell))
	}
}

// row prints a row; the last cell of text is not padded.
func (w *getWriter[T]) row(columns []getColumn[T], cells []string) error {
	var line strings.Builder
	w.growWidths(cells) // a later row may be wider
	for i, cell := range cells {
		align := text.AlignLeft
		if columns[i].right {
			align = text.AlignRight
		}
		line.WriteString(align.Apply(cell, w.widths[i]) + "  ")
	}
	_, err := fmt.Fprintln(w.to, strings.TrimRight(line.String(), " "))
	return err
}

// writeYAML prints a value with the names and in the order of its JSON.
func writeYAML(w io.Writer, value any) error {
	written, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(written, &node); err != nil { // JSON is YAML
		return err
	}
	plainStyle(&node)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&node); err != nil {
		return err
	}
	_, err = out.WriteTo(w)
	return err
}

// plainStyle removes the braces and quotes of JSON, where YAML does not need them.
func plainStyle(node *yaml.Node) {
	node.Style = 0
	for _, child := range node.Content {
		plainStyle(child)
	}
}
