// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/jeoul/jeoul/internal/bench/load/live"
)

// benchLiveServerCmd is what `bench run` starts on servers that answer with
// their name.
type benchLiveServerCmd struct {
	Name string `required:"" help:"What it answers with."`
	Port uint16 `required:"" help:"The TCP and UDP port."`
	// Health is 0 for none.
	Health uint16 `help:"The TCP port for health checks over HTTP."`
}

// Run serves until it is told to stop.
func (c *benchLiveServerCmd) Run(ctx context.Context) error {
	return live.Serve(ctx, c.Name, c.Port, c.Health)
}

// benchLiveClientCmd is what `bench run` starts on clients that hold connections.
type benchLiveClientCmd struct {
	Socket string `required:"" type:"path" help:"Where the bench listens."`
}

// Run does what the bench says until that is done.
func (c *benchLiveClientCmd) Run(ctx context.Context) error {
	return live.Hold(ctx, c.Socket)
}
