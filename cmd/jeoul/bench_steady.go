// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/jeoul/jeoul/internal/bench/load"
)

// benchSteadyCmd is the client of a flood's experiment, which a run starts in its
// laboratory.
type benchSteadyCmd struct {
	Steady string `arg:"" help:"What to do, as JSON."`
}

// Run asks until its time is over, and prints what it saw.
func (c *benchSteadyCmd) Run(ctx context.Context) error {
	var steady load.Steady
	if err := json.Unmarshal([]byte(c.Steady), &steady); err != nil {
		return fmt.Errorf("reading what to ask: %w", err)
	}
	report, err := steady.Run(ctx, os.Stdout)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}
