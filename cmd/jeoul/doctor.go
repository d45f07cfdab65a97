// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/tools/doctor"
	"github.com/jeoul/jeoul/internal/tools/doctor/rules"
)

type doctorCmd struct {
	Interface string        `name:"interface" placeholder:"NAME" help:"Judge the counters of this interface only (all but the loopback)."`
	For       time.Duration `name:"for" default:"10s" placeholder:"DURATION" help:"How long to watch (${default})."`
	VIP       []netip.Addr  `name:"vip" placeholder:"ADDRESS" help:"Ask the segment who answers for this address, besides the VIPs that are known here; may be repeated."`
	Passive   bool          `name:"passive" help:"Send nothing and follow no packets: read counters and listen."`
	Socket    string        `name:"socket" default:"${socket}" type:"path" placeholder:"PATH" help:"Unix socket of the daemon, if one runs (${default})."`
	cmdkit.OutputFlag
	Evidence bool `name:"evidence" help:"With -o json: add all readings, as a report of a wrong finding needs them."`
	Verbose  bool `name:"verbose" short:"v" help:"Show everything that the kernel dropped, harmless or not."`
}

// Validate checks the command line.
func (c *doctorCmd) Validate() error {
	if c.For <= 0 {
		return fmt.Errorf("--for %s: nothing can be seen in no time; say 10s or so", c.For)
	}
	return nil
}

// exitFound is the exit status if there are findings.
const exitFound = 3

// findingsError holds the number of findings.
type findingsError int

func (n findingsError) Error() string {
	if n == 1 {
		return "one finding"
	}
	return fmt.Sprintf("%d findings", int(n))
}

// ExitCode distinguishes findings from a failed examination.
func (findingsError) ExitCode() int { return exitFound }

// Run diagnoses the host and prints the findings.
func (c *doctorCmd) Run(ctx context.Context) error {
	if !c.JSON() {
		fmt.Fprintf(os.Stderr, "jeoul: watching for %s\n", c.For)
	}
	report, err := doctor.Run(ctx, doctor.Options{Interface: c.Interface, For: c.For, Socket: c.Socket, VIPs: c.VIP,
		Passive: c.Passive})
	switch {
	case errors.Is(err, context.Canceled):
		return cmdkit.Interrupted{Err: err}
	case err != nil:
		return err
	}
	if !c.Evidence {
		report.Evidence = nil
	}
	if c.JSON() {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		writeDiagnosis(os.Stdout, report, c.Verbose)
	}
	if err == nil && len(report.Findings) > 0 {
		return findingsError(len(report.Findings))
	}
	return err
}

// writeDiagnosis prints a report for a person.
func writeDiagnosis(w io.Writer, r *doctor.Report, verbose bool) {
	if len(r.Findings) == 0 {
		fmt.Fprintf(w, "nothing wrong that can be seen from %s in %.1f s\n", r.Host, r.Seconds)
	}
	for i, f := range r.Findings {
		if i > 0 {
			fmt.Fprintln(w)
		}
		writeFinding(w, i+1, f)
	}
	if verbose {
		writeDropped(w, r)
	}
	if len(r.Unread) > 0 {
		fmt.Fprintln(w, "\nnot looked at:")
	}
	for _, g := range r.Unread {
		fmt.Fprintf(w, "  %s: %s", g.Source, g.Reason)
		if g.Remedy != "" {
			fmt.Fprintf(w, "; %s", g.Remedy)
		}
		fmt.Fprintln(w)
	}
}

// wrapAt is the width of lines of prose.
const wrapAt = 96

func writeFinding(w io.Writer, n int, f rules.Finding) {
	paragraph := func(label, prose string) {
		for line := range strings.SplitSeq(text.WrapSoft(prose, wrapAt), "\n") {
			fmt.Fprintf(w, "   %-6s %s\n", label, strings.TrimRight(line, " "))
			label = ""
		}
	}
	fmt.Fprintf(w, "%d. %s  [%s, %s]\n", n, f.Title, f.Harm, f.Kind)
	label := "seen"
	for _, figure := range f.Seen {
		paragraph(label, figureText(figure))
		label = ""
	}
	paragraph("means", f.Means)
	label = "cure"
	for _, remedy := range f.Remedies {
		prose := remedy.Do
		if remedy.Tune != "" {
			prose += " (`jeoul tune`: " + remedy.Tune + ")"
		}
		paragraph(label, prose)
		label = ""
	}
}

// figureText writes "TcpExtListenOverflows: 134 connections of 200 on eth0 (note)".
func figureText(f rules.Figure) string {
	s := f.Name + ": " + number(f.Value)
	if f.Of > 0 {
		s += " of " + number(f.Of)
	}
	s += " " + f.Unit
	if f.On != "" {
		s += ", " + f.On
	}
	if f.Note != "" {
		s += " (" + f.Note + ")"
	}
	return s
}

// number formats whole numbers without decimals, and others with one.
func number(v float64) string {
	if v == float64(uint64(v)) {
		return cmdkit.Count(uint64(v))
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// writeDropped lists the packets that the kernel dropped, by reason.
func writeDropped(w io.Writer, r *doctor.Report) {
	if len(r.Drops) == 0 {
		return
	}
	fmt.Fprintln(w, "\nwhat the kernel dropped meanwhile:")
	t := cmdkit.NewTable(w, "packets", "reason", "function", "such as")
	cmdkit.RightAlign(t, "packets")
	for _, d := range r.Drops {
		example := "-"
		if d.Example != nil {
			example = d.Example.String()
		}
		t.AppendRow(table.Row{cmdkit.Count(d.Packets), d.Reason, cmdkit.OrDash(d.Function), example})
	}
	t.Render()
}
