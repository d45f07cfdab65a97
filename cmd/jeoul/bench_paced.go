// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/jeoul/jeoul/internal/bench/load/paced"
)

// benchPacedClientCmd is a client of an open loop, which `bench run` starts.
type benchPacedClientCmd struct {
	Options string `arg:"" help:"What to do, as JSON."`
}

// Run asks at the times that are due, and prints what became of it.
func (c *benchPacedClientCmd) Run(ctx context.Context) error {
	var options paced.Options
	if err := json.Unmarshal([]byte(c.Options), &options); err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	report, err := options.Run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}
