// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
)

// benchSteadyCmd is the client of a flood's experiment, which a run starts in its laboratory.
type benchSteadyCmd struct {
	Steady string `arg:"" help:"The load, as JSON."`
}

// Run sends requests until SIGUSR1 has ended each phase, prints a line at the end of each, and then its results.
func (c *benchSteadyCmd) Run(ctx context.Context) error {
	var steady load.Steady
	if err := json.Unmarshal([]byte(c.Steady), &steady); err != nil {
		return fmt.Errorf("reading the requests to make: %w", err)
	}
	next := make(chan os.Signal, len(steady.Phases))
	signal.Notify(next, unix.SIGUSR1)
	report, err := steady.Run(ctx, os.Stdout, next)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}
