// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// runClient reads what a client that `bench run` starts is to do, does it, and prints what
// became of it: both as JSON.
func runClient[Options interface {
	Run(context.Context) (Report, error)
}, Report any](ctx context.Context, text string) error {
	var options Options
	if err := json.Unmarshal([]byte(text), &options); err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	report, err := options.Run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}
