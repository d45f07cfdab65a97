// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/bench"
	"github.com/jeoul/jeoul/internal/bench/packets"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/report"
	"github.com/jeoul/jeoul/internal/results"
)

// benchPacketsCmd measures the data plane without a network.
type benchPacketsCmd struct {
	JSON    bool      `name:"json" help:"Print the results (results.json) instead of a table."`
	Rounds  int       `default:"7" help:"How often each figure is measured; medians are shown (${default})."`
	Packets uint32    `default:"100000" help:"How many packets make a figure (${default})."`
	Hook    []lb.Hook `default:"xdp,tc" help:"xdp, tc or both (${default})."`
	Only    string    `placeholder:"PATTERN" help:"Measure only the cases that match a regular expression, such as 'l2dsr.*scheduler=rr', and the empty program."`
	List    bool      `help:"Print the cases that --only chooses from, and measure nothing."`

	only *regexp.Regexp
}

// packetsNotes are what a reader of the figures must know.
var packetsNotes = []string{
	"BPF_PROG_TEST_RUN repeats a harness that restores the packet, takes the next flow and tail-calls the program under test; its cost is in `empty`, and so not in the net figures",
	"a packet that a tunnel made longer has to be made shorter again: that is in the tunnels' net figures, and in those of `adjust`, which makes a packet 20 bytes longer and nothing else",
	"in TC the kernel takes a socket buffer that was in a tunnel once for one that still is, and refuses to put it in another: from the second packet on, tunnels and `adjust` make room in a second try, which real packets do not need",
	"replies of nat and fullnat find their way by the kernel's route lookup, in a network namespace with one route a family and a known neighbour",
	"no device, no driver, no memory traffic of packets: this is the program's own cost, on one CPU with warm code",
	"the empty program runs right before each figure, under the same packets, and its figure is what `net` is net of",
}

// Validate refuses what would measure nothing.
func (c *benchPacketsCmd) Validate() error {
	if c.Rounds < 1 || c.Packets < 1 {
		return errors.New("--rounds and --packets must be 1 or more")
	}
	for _, hook := range c.Hook {
		if hook != lb.HookXDP && hook != lb.HookTC {
			return fmt.Errorf("--hook: %q is no hook that packets are measured in: use xdp, tc or both", hook)
		}
	}
	if c.Only == "" {
		return nil
	}
	var err error
	if c.only, err = regexp.Compile(c.Only); err != nil {
		return fmt.Errorf("--only: %v", err)
	}
	return nil
}

// Run measures, and prints what it measured.
func (c *benchPacketsCmd) Run(ctx context.Context) error {
	if c.List {
		return c.list()
	}
	version, commit := build()
	env, err := bench.Machine(version, commit)
	if err != nil {
		return err
	}
	env.Notes = packetsNotes
	run := &results.Run{
		Schema: results.Schema, Suite: "packets", Title: "What a packet costs in the data plane",
		Command: strings.Join(os.Args, " "), Started: time.Now(), Environment: env,
	}
	run.Trials, err = packets.Measure(ctx, packets.Options{
		Rounds: c.Rounds, Packets: c.Packets, Hooks: c.Hook, Only: c.only, Progress: c.progress(),
	})
	run.Ended = time.Now()
	switch {
	case errors.Is(err, context.Canceled):
		run.Interrupted = true
		err = errInterrupted{fmt.Errorf("%w after %d rounds' trials", bench.ErrInterrupted, len(run.Trials))}
	case errors.Is(err, packets.ErrNothing):
		return fmt.Errorf("--only %s: %w: --list shows what there is", c.Only, err)
	case err != nil:
		return err
	}
	if len(run.Trials) == 0 {
		return err
	}
	if c.JSON {
		return errors.Join(err, run.Write(os.Stdout))
	}
	return errors.Join(err, report.Terminal(os.Stdout, run))
}

// list prints what can be measured, as far as it is chosen.
func (c *benchPacketsCmd) list() error {
	for _, hook := range c.Hook {
		for _, name := range packets.Cases(hook) {
			if c.only == nil || c.only.MatchString(name) {
				fmt.Println(name)
			}
		}
	}
	return nil
}

// progress tells on a terminal how far the measurement is.
func (c *benchPacketsCmd) progress() func(round, rounds int) {
	if !terminal(os.Stderr) {
		return nil
	}
	return func(round, rounds int) {
		end := "\r"
		if round == rounds {
			end = "\n"
		}
		fmt.Fprintf(os.Stderr, "round %d of %d%s", round, rounds, end)
	}
}
