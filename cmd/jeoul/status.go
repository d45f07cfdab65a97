// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/jeoul/jeoul/internal/api"
	"github.com/jeoul/jeoul/internal/lb"
)

type statusCmd struct {
	Socket  string `name:"socket" default:"/run/jeoul/jeoul.sock" type:"path" placeholder:"PATH" help:"Unix socket of the daemon (${default})."`
	Output  string `name:"output" short:"o" enum:"table,json" default:"table" placeholder:"table|json" help:"For a person or for a program (${default})."`
	Verbose bool   `name:"verbose" short:"v" help:"Show outcomes that no packet had, too."`
}

// Run asks the daemon and prints what it says.
func (c *statusCmd) Run(ctx context.Context) error {
	status, err := api.NewClient(c.Socket).Status(ctx)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(status)
	}
	writeStatus(os.Stdout, status, c.Verbose, time.Now())
	return nil
}

// writeStatus prints a status for a person.
func writeStatus(w io.Writer, status *api.Status, verbose bool, now time.Time) {
	fmt.Fprintf(w, "%s on %s: %s\n", hookName(status.Hook), status.Interface, status.Hook.Reason)
	fmt.Fprintf(w, "%s, up %s, process %d, jeoul %s\n",
		status.Config, now.Sub(status.Started).Truncate(time.Second), status.PID, status.Version)
	for _, problem := range status.Problems {
		fmt.Fprintf(w, "! %s\n", problem)
	}
	for _, service := range status.Services {
		writeService(w, service)
	}
	writeOutcomes(w, status.Outcomes, verbose)
}

func hookName(h api.Hook) string {
	switch {
	case h.Name != lb.HookXDP:
		return string(h.Name)
	case h.Generic:
		return "xdp (generic)"
	}
	return "xdp (native)"
}

func writeService(w io.Writer, s api.Service) {
	key := lb.ServiceKey{VIP: s.VIP, Port: s.Port, Protocol: s.Protocol}
	fmt.Fprintf(w, "\n%s  %s  %s  %s\n", s.Name, key, s.Mode, s.Scheduler)
	t := newTable(w, "backend", "address", "weight", "state", "neighbour", "mac", "connections", "packets", "bytes")
	rightAlign(t, "weight", "connections", "packets", "bytes")
	for _, b := range s.Backends {
		t.AppendRow(table.Row{b.Name, b.Address, b.Weight, b.State, b.Neighbour, orDash(b.MAC),
			count(b.Connections), count(b.Packets), count(b.Bytes)})
	}
	t.Render()
}

func writeOutcomes(w io.Writer, outcomes []api.Outcome, verbose bool) {
	t := newTable(w, "outcome", "packets", "meaning")
	rightAlign(t, "packets")
	shown := 0
	for _, o := range outcomes {
		if o.Packets == 0 && !verbose {
			continue
		}
		t.AppendRow(table.Row{o.Name, count(o.Packets), o.Help})
		shown++
	}
	fmt.Fprintln(w)
	if shown == 0 {
		fmt.Fprintln(w, "no packet so far")
		return
	}
	t.Render()
}

// newTable returns a table without lines, which a terminal and grep both like.
func newTable(w io.Writer, columns ...any) table.Writer {
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

func rightAlign(t table.Writer, columns ...string) {
	var configs []table.ColumnConfig
	for _, name := range columns {
		configs = append(configs, table.ColumnConfig{Name: name, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
}

// count writes 1234567 as 1,234,567.
func count(n uint64) string { return message.NewPrinter(language.English).Sprintf("%d", n) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
