// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/jeoul/jeoul/internal/bench/packets"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/results"
)

// benchPacketsCmd measures the data plane without a network.
type benchPacketsCmd struct {
	benchOutput
	Repeats int       `default:"3" help:"How often each figure is found; medians are shown (${default})."`
	Rounds  int       `default:"3" help:"How often it is measured for that; the fastest counts (${default})."`
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
	"each scheduler that remembers flows has a balancer of its own, with room for just the known flows of a case, that all are proven; new flows are measured beside them, " +
		"and fill at most half of the room for unproven ones",
	"a figure is the fastest of some rounds, less the fastest of the empty program: a busy neighbour on the processor can only slow a packet down; samples has all rounds",
	"each round has balancers of its own: where tables happen to lie in memory is worth some nanoseconds",
	"the empty program runs right before each figure, under the same packets, and its figure is what `net` is net of",
}

// Validate refuses what would measure nothing.
func (c *benchPacketsCmd) Validate() error {
	if c.Repeats < 1 || c.Rounds < 1 || c.Packets < 1 {
		return errors.New("--repeats, --rounds and --packets must be 1 or more")
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
	run := &results.Run{Suite: "packets", Title: "What a packet costs in the data plane",
		Environment: results.Environment{Notes: packetsNotes}}
	return c.run(run, func() ([]results.Trial, error) {
		trials, err := packets.Measure(ctx, packets.Options{
			Repeats: c.Repeats, Rounds: c.Rounds, Packets: c.Packets, Hooks: c.Hook, Only: c.only, Progress: tellRounds(),
		})
		if errors.Is(err, packets.ErrNothing) {
			err = fmt.Errorf("--only %s: %w: --list shows what there is", c.Only, err)
		}
		return trials, err
	})
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
