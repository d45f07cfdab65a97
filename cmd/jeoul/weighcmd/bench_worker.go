// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/weigh/remote"
)

// benchWorkerCmd is a machine of a bench that runs elsewhere: see package remote.
type benchWorkerCmd struct {
	Dir string `required:"" type:"path" help:"The worker's own directory, which goes with it."`
}

// Run works until the connection is closed.
func (c *benchWorkerCmd) Run(ctx context.Context) error {
	// With the connection gone there is still everything to be taken back.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	return remote.Serve(ctx, c.Dir, buildName(), os.Stdin, os.Stdout)
}

// buildName tells this jeoul from others.
func buildName() string {
	version, commit := cmdkit.Build()
	return version + " " + commit
}

// runClient reads the options of a client that `bench run` starts, runs it, and prints its report: both as JSON.
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
