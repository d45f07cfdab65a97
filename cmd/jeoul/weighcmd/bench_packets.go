// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/packets"
	"github.com/jeoul/jeoul/internal/weigh/bench/packets/object"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// benchPacketsCmd measures the data plane without a network.
type benchPacketsCmd struct {
	benchOutput
	Repeats int       `default:"3" placeholder:"N" help:"How often each figure is found; medians are shown (${default})."`
	Rounds  int       `default:"3" placeholder:"N" help:"How often it is measured for that; the fastest counts (${default})."`
	Packets uint32    `default:"100000" placeholder:"N" help:"How many packets make a figure (${default})."`
	Hook    []lb.Hook `enum:"xdp,tc" default:"xdp,tc" placeholder:"xdp|tc" help:"Where packets are taken: xdp, tc or both (${default})."`
	Only    string    `name:"match" placeholder:"PATTERN" help:"Measure only the cases that match a regular expression, such as 'l2dsr.*scheduler=rr', and the empty program."`
	List    bool      `help:"Print the cases that --match chooses from, and measure nothing."`
	Object  string    `type:"existingfile" placeholder:"FILE" help:"Measure the program of this eBPF object (ELF), such as another balancer's, beside ours."`
	Setup   string    `type:"existingfile" placeholder:"FILE" help:"Contents for the maps of --object, packets to send to it and its counters (YAML): see docs/weigh/packets.md."`
	benchLab
	Build string `type:"existingfile" placeholder:"FILE" help:"Measure the data plane of this jeoul, such as another commit's, instead of this one's; in a virtual machine only."`

	only   *regexp.Regexp
	object *packets.Object
}

// packetsNotes are the conditions that a reader of the figures must know.
func packetsNotes() []string { return slices.Concat(packets.Notes, packets.TimingNotes) }

// Validate rejects a command line that measures nothing.
func (c *benchPacketsCmd) Validate() error {
	if c.Repeats < 1 || c.Rounds < 1 || c.Packets < 1 {
		return errors.New("--repeats, --rounds and --packets must be 1 or more")
	}
	if c.Build != "" && c.Lab == labHere {
		return errors.New(
			"--build puts another jeoul into a virtual machine: add --lab vm-icount; here, run that jeoul by itself")
	}
	if err := c.benchLab.Validate(); err != nil {
		return err
	}
	if (c.Object == "") != (c.Setup == "") {
		return errors.New("--object and --setup go together: the one is the program, the other its setup for measurements")
	}
	if c.Object != "" && c.Lab != labHere {
		return errors.New("--object is measured on this machine: leave out --lab")
	}
	if c.Only == "" {
		return nil
	}
	var err error
	if c.only, err = regexp.Compile(c.Only); err != nil {
		return fmt.Errorf("--match: %v", err)
	}
	return nil
}

// readSetup reads the setup of the object.
func (c *benchPacketsCmd) readSetup() error {
	if c.Setup == "" {
		return nil
	}
	data, err := os.ReadFile(c.Setup)
	if err != nil {
		return fmt.Errorf("reading the setup: %w", err)
	}
	setup, err := object.Parse(c.Setup, data)
	if err != nil {
		return err
	}
	c.object = &packets.Object{File: c.Object, Setup: setup}
	return nil
}

// Run measures, and prints the results.
func (c *benchPacketsCmd) Run(ctx context.Context) error {
	if c.List {
		return c.list()
	}
	if c.Lab != labHere {
		return c.inVM(ctx)
	}
	if err := c.readSetup(); err != nil {
		return err
	}
	run := &results.Run{Suite: "packets", Title: "What a packet costs in the data plane",
		Environment: results.Environment{Notes: packetsNotes()}}
	return c.run(run, func() ([]results.Trial, error) {
		trials, err := packets.Measure(ctx, packets.Options{
			Repeats: c.Repeats, Rounds: c.Rounds, Packets: c.Packets, Hooks: c.Hook, Only: c.only, Object: c.object,
			Progress: progressRounds(),
		})
		if errors.Is(err, packets.ErrNothing) {
			err = fmt.Errorf("--match %s: %w: --list shows the cases", c.Only, err)
		}
		return trials, err
	})
}

// list prints the cases that can be measured, restricted to the selected ones.
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
