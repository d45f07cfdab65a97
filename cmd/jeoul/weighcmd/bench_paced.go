// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"

	"github.com/jeoul/jeoul/internal/weigh/bench/load/paced"
)

// benchPacedClientCmd is a client of an open loop, which `bench run` starts.
type benchPacedClientCmd struct {
	Options string `arg:"" help:"The load, as JSON."`
}

// Run asks at the times that are due, and prints the outcomes.
func (c *benchPacedClientCmd) Run(ctx context.Context) error {
	return runClient[paced.Options](ctx, c.Options)
}
