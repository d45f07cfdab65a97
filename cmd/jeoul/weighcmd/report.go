// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// ReportCmd makes readable output from results.
type ReportCmd struct {
	Show      reportShowCmd      `cmd:"" default:"withargs" help:"Make tables, charts and a page from the results of a run."`
	Compare   reportCompareCmd   `cmd:"" help:"Say what changed from one run to another, point by point."`
	Summarise reportSummariseCmd `cmd:"" help:"Write a run's results without samples, as a far smaller file."`
}

// reportShowCmd makes a report, a picture or both from a results file.
type reportShowCmd struct {
	File   string `arg:"" help:"The results.json of a run." placeholder:"FILE"`
	Output string `name:"output" short:"o" enum:",text,markdown,html" default:"" placeholder:"FORMAT" help:"Output format: text, markdown or html; by default what the ending of --to says, or text."`
	To     string `name:"to" placeholder:"PATH" help:"Write the report to this file (.html, .md or .txt) instead of standard output."`
	Chart  string `placeholder:"FILE" help:"Write a picture of the main result as SVG, for a README; without --to, nothing else is written."`
	reportLanguage
}

// reportLanguage is the language of reports for people.
type reportLanguage struct {
	Lang string `enum:"en,ko" default:"en" placeholder:"en|ko" help:"Language of reports (${default})."`
}

// errEnding means that the name of an output file does not determine the format.
var errEnding = errors.New("its ending is none of .html, .md and .txt; add -o text, markdown or html")

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
		if c.To == "" {
			return nil
		}
	}
	return writeForm(c.To, run, write)
}

type formFunc func(io.Writer, *results.Run) error

// form selects the report's form from the flags.
func (c *reportShowCmd) form() (formFunc, error) {
	format := c.Output
	if format == "" {
		switch strings.ToLower(filepath.Ext(c.To)) {
		case ".html", ".htm":
			format = "html"
		case ".md", ".markdown":
			format = "markdown"
		case ".txt":
			format = "text"
		default:
			if c.To != "" {
				return nil, fmt.Errorf("writing the report to %s: %w", c.To, errEnding)
			}
			format = "text"
		}
	}
	language := report.Language(c.Lang)
	return map[string]formFunc{"text": language.Terminal, "markdown": language.Markdown, "html": language.HTML}[format],
		nil
}

// reportCompareCmd compares two runs.
type reportCompareCmd struct {
	First  string `arg:"" help:"The results.json of a run." placeholder:"FIRST"`
	Second string `arg:"" help:"The results.json of a later run, or of another commit's." placeholder:"SECOND"`
	Output string `name:"output" short:"o" enum:"text,markdown" default:"text" placeholder:"FORMAT" help:"Output format: text or markdown (${default})."`
	reportLanguage
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
		return report.Compare(w, report.Format(c.Output), report.Language(c.Lang), first, run)
	})
}

// reportSummariseCmd makes a results file smaller, for keeping it.
type reportSummariseCmd struct {
	File string `arg:"" help:"The results.json of a run." placeholder:"FILE"`
	To   string `name:"to" placeholder:"PATH" help:"Write to this file, which may be FILE; compressed if its name ends in .gz."`
}

// Run reads the results first: if they are unusable, nothing is written.
func (c *reportSummariseCmd) Run(context.Context) error {
	run, err := results.Load(c.File)
	if err != nil {
		return err
	}
	write := (*results.Run).WriteSummary
	if strings.HasSuffix(c.To, ".gz") {
		write = (*results.Run).WriteCompressedSummary
	}
	return writeForm(c.To, run, func(w io.Writer, run *results.Run) error { return write(run, w) })
}

// writeForm renders in memory, so that a failure leaves no partial report, and then writes to the file at path, or to
// standard output if path is empty.
func writeForm(path string, run *results.Run, write formFunc) error {
	var buf bytes.Buffer
	if err := write(&buf, run); err != nil {
		return err
	}
	if path == "" {
		_, err := os.Stdout.Write(buf.Bytes())
		return err
	}
	if err := Replace(path, buf.Bytes()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// Replace puts data at path in one step. It writes to an existing path that is no regular file, such as /dev/stdout or
// a pipe, instead of replacing it.
func Replace(path string, data []byte) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, data, 0o644)
	}
	return results.WriteFile(path, data)
}
