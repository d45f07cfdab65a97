// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"errors"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/scale"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// benchScaleCmd measures the cost of a configuration's size.
type benchScaleCmd struct {
	benchOutput
	Hook    lb.Hook `enum:"xdp,tc" default:"xdp" placeholder:"xdp|tc" help:"Where packets are taken (${default})."`
	Rounds  int     `default:"7" placeholder:"N" help:"How often a configuration is loaded and a packet's cost is measured (${default})."`
	Changes int     `default:"200" placeholder:"N" help:"How many changes of each kind are made (${default})."`
	Packets uint32  `default:"500000" placeholder:"N" help:"How many packets make a figure (${default})."`
}

// scaleNotes are the conditions that a reader of the figures must know.
var scaleNotes = []string{
	"10,000 services of 10 backends each, and 10 services of 10,000; L2DSR, Maglev, tables as large as the number of backends makes them by default; 1 service of 10 beside them",
	"a change is one backend's, of a service at random, and is timed until Apply returns; then a SYN of a flow that went to that backend is sent through the program: it goes elsewhere after each change away, and one of another flow goes to the backend again after each change back",
	"packets go through BPF_PROG_TEST_RUN, as in jeoul bench packets; no device, no neighbours and no addresses are part of this",
}

// Validate rejects a command line that measures nothing.
func (c *benchScaleCmd) Validate() error {
	if c.Rounds < 1 || c.Packets < 1 || c.Changes < 1 {
		return errors.New("--rounds, --changes and --packets must be 1 or more")
	}
	return nil
}

// Run measures, and prints the results.
func (c *benchScaleCmd) Run(ctx context.Context) error {
	run := &results.Run{Suite: "scale", Title: "What the size of a configuration costs",
		Environment: results.Environment{Notes: scaleNotes}}
	return c.run(run, func() ([]results.Trial, error) {
		return scale.Measure(ctx, scale.Options{Hook: c.Hook, Rounds: c.Rounds, Changes: c.Changes, Packets: c.Packets,
			Progress: progressLine()})
	})
}
