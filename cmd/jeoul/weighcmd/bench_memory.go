// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"

	"github.com/jeoul/jeoul/internal/weigh/bench/memory"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// benchMemoryCmd measures the memory of a flow.
type benchMemoryCmd struct {
	benchOutput
	Flows []uint32 `default:"1000000,10000000" placeholder:"N" help:"How many flows are remembered, a figure each (${default})."`
}

// memoryNotes are the conditions that a reader of the figures must know.
var memoryNotes = []string{
	"flows are opened by SYNs, and proven by an ACK each, through BPF_PROG_TEST_RUN; those that are remembered are counted in the kernel's maps",
	"memlock is what the kernel says of each map in /proc/self/fdinfo; MemAvailable is the whole machine's, and others use it too",
}

// Run measures, and prints the results.
func (c *benchMemoryCmd) Run(ctx context.Context) error {
	run := &results.Run{Suite: "memory", Title: "What remembering a flow takes",
		Environment: results.Environment{Notes: memoryNotes}}
	return c.run(run, func() ([]results.Trial, error) {
		return memory.Measure(ctx, memory.Options{Flows: c.Flows, Progress: progressLine()})
	})
}
