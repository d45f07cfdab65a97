// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"errors"

	"github.com/jeoul/jeoul/internal/weigh/bench/distribution"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// benchDistributionCmd counts which backends new flows get.
type benchDistributionCmd struct {
	benchOutput
	Rounds int    `default:"3" placeholder:"N" help:"How often everything is counted, each time with other flows (${default})."`
	Flows  uint32 `default:"1048576" placeholder:"N" help:"How many flows are opened for a figure, a power of two (${default})."`
}

// distributionNotes are the conditions that a reader of the figures must know.
var distributionNotes = []string{
	"each row is a service of its own, in mode l2dsr; its flows are opened by SYNs through BPF_PROG_TEST_RUN, and each backend's are what the data plane counted",
	"flows differ in the client's address and port (65,536 clients); for sh each is of another client",
	"lc, wlc and random2: once with flows that never end, and once such that of each 16,384 flows half, by lot, end by RST before the next come: there each backend's are those that are open at the end",
}

// Validate rejects a command line that counts nothing.
func (c *benchDistributionCmd) Validate() error {
	if c.Rounds < 1 {
		return errors.New("--rounds must be 1 or more")
	}
	return nil
}

// Run counts, and prints the counts.
func (c *benchDistributionCmd) Run(ctx context.Context) error {
	run := &results.Run{Suite: "distribution", Title: "How new flows are spread over backends",
		Environment: results.Environment{Notes: distributionNotes}}
	return c.run(run, func() ([]results.Trial, error) {
		return distribution.Measure(ctx, distribution.Options{Rounds: c.Rounds, Flows: c.Flows,
			Progress: progressRounds()})
	})
}
