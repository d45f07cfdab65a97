// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/jeoul/jeoul/internal/report"
	"github.com/jeoul/jeoul/internal/results"
)

// reportCmd makes a report, a picture or both from a results file.
type reportCmd struct {
	File   string `arg:"" help:"The results.json of a run." placeholder:"FILE"`
	Format string `enum:"auto,terminal,markdown,html" default:"auto" help:"Form of the report: ${enum}. With auto, the ending of the output file decides, and standard output gets the terminal form."`
	Output string `short:"o" placeholder:"FILE" help:"Write the report to FILE (.html, .md or .txt) instead of standard output."`
	Chart  string `placeholder:"FILE.svg" help:"Write a picture of the main result, for a README. Without -o, nothing else is written."`
}

// errEnding says that an output file's name does not tell the form.
var errEnding = errors.New("its ending is none of .html, .md and .txt; add --format terminal, markdown or html")

// Run reads the results first: if they are unusable, nothing is written.
func (c *reportCmd) Run(ctx context.Context) error {
	write, err := c.form()
	if err != nil {
		return err
	}
	run, err := results.Load(c.File)
	if err != nil {
		return err
	}
	if c.Chart != "" {
		if err := writeForm(c.Chart, run, report.Chart); err != nil {
			return err
		}
		if c.Output == "" {
			return nil
		}
	}
	return writeForm(c.Output, run, write)
}

type formFunc func(io.Writer, *results.Run) error

// form picks the report's form from the flags.
func (c *reportCmd) form() (formFunc, error) {
	format := c.Format
	if format == "" || format == "auto" {
		switch strings.ToLower(filepath.Ext(c.Output)) {
		case ".html", ".htm":
			format = "html"
		case ".md", ".markdown":
			format = "markdown"
		case ".txt":
			format = "terminal"
		default:
			if c.Output != "" {
				return nil, fmt.Errorf("writing the report to %s: %w", c.Output, errEnding)
			}
			format = "terminal"
		}
	}
	return map[string]formFunc{"terminal": report.Terminal, "markdown": report.Markdown, "html": report.HTML}[format], nil
}

// writeForm renders in memory, so that a failure leaves no half a report, and
// then writes to the file at path, or to standard output if path is empty.
func writeForm(path string, run *results.Run, write formFunc) error {
	var buf bytes.Buffer
	if err := write(&buf, run); err != nil {
		return err
	}
	if path == "" {
		_, err := os.Stdout.Write(buf.Bytes())
		return err
	}
	if err := replace(path, buf.Bytes()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// replace puts data at path in one step. What is there and not a file, such as
// /dev/stdout or a pipe, is written to and not replaced.
func replace(path string, data []byte) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, data, 0o644)
	}
	return results.WriteFile(path, data)
}
