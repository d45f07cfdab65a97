// SPDX-License-Identifier: Apache-2.0

package operatecmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/jeoul/jeoul/internal/text/terminal"
)

// DiffCmd shows the changes that applying a file would make.
type DiffCmd struct{ sourceFlags }

// Run prints the differences; it changes nothing.
func (c *DiffCmd) Run(ctx context.Context) error {
	return (&ApplyCmd{c.sourceFlags, true}).Run(ctx)
}

// writeDifference prints a unified diff, in colours for a person at a terminal.
func writeDifference(w io.Writer, difference string, colours bool) {
	for line := range strings.Lines(difference) {
		line = strings.TrimSuffix(line, "\n")
		if colours {
			line = colourOf(line).Sprint(line)
		}
		fmt.Fprintln(w, line)
	}
}

// colourOf is the colour of a line of a unified diff.
func colourOf(line string) text.Colors {
	switch {
	case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "diff "):
		return text.Colors{text.Bold}
	case strings.HasPrefix(line, "@@"):
		return text.Colors{text.FgCyan}
	case strings.HasPrefix(line, "+"):
		return text.Colors{text.FgGreen}
	case strings.HasPrefix(line, "-"):
		return text.Colors{text.FgRed}
	}
	return nil
}

// coloured reports whether the output has colours (https://no-color.org).
func coloured() bool { return terminal.Is(os.Stdout) && os.Getenv("NO_COLOR") == "" }
