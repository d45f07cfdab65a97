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

// reportCmd makes something to read of results.
type reportCmd struct {
	Show    reportShowCmd    `cmd:"" default:"withargs" help:"Make tables, charts and a page from the results of a run."`
	Compare reportCompareCmd `cmd:"" help:"Say what changed from one run to another, point by point, and whether their ratios agree."`
}

// reportShowCmd makes a report, a picture or both from a results file.
type reportShowCmd struct {
	File   string `arg:"" help:"The results.json of a run." placeholder:"FILE"`
	Format string `enum:"auto,terminal,markdown,html" default:"auto" help:"Form of the report: ${enum}. With auto, the ending of the output file decides, and standard output gets the terminal form."`
	Output string `short:"o" placeholder:"FILE" help:"Write the report to FILE (.html, .md or .txt) instead of standard output."`
	Chart  string `placeholder:"FILE.svg" help:"Write a picture of the main result, for a README. Without -o, nothing else is written."`
	Lang   string `enum:"en,ko" default:"en" help:"Language of the texts: ${enum}."`
}

// errEnding says that an output file's name does not tell the form.
var errEnding = errors.New("its ending is none of .html, .md and .txt; add --format terminal, markdown or html")

// Run reads the results first: if they are unusable, nothing is written.
func (c *reportShowCmd) Run(ctx context.Context) error {
	write, err := c.form()
	if err != nil {
		return err
	}
	run, err := results.Load(c.File)
	if err != nil {
		return err
	}
	if c.Chart != "" {
		if err := writeForm(c.Chart, run, report.Language(c.Lang).Chart); err != nil {
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
func (c *reportShowCmd) form() (formFunc, error) {
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
	language := report.Language(c.Lang)
	return map[string]formFunc{"terminal": language.Terminal, "markdown": language.Markdown, "html": language.HTML}[format], nil
}

// reportCompareCmd holds two runs against each other.
type reportCompareCmd struct {
	First  string `arg:"" help:"The results.json of a run." placeholder:"FIRST"`
	Second string `arg:"" help:"The results.json of a later run, or of another commit's." placeholder:"SECOND"`
	Format string `enum:"terminal,markdown" default:"terminal" help:"Form of the comparison: ${enum}."`
	Lang   string `enum:"en,ko" default:"en" help:"Language of the texts: ${enum}."`
}

// Run reads both files before it writes anything.
func (c *reportCompareCmd) Run(ctx context.Context) error {
	first, err := results.Load(c.First)
	if err != nil {
		return err
	}
	second, err := results.Load(c.Second)
	if err != nil {
		return err
	}
	return writeForm("", second, func(w io.Writer, run *results.Run) error {
		return report.Compare(w, report.Format(c.Format), report.Language(c.Lang), first, run)
	})
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
