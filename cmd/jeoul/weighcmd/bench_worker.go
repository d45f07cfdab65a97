// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/remote"
)

// benchWorkerCmd makes this host a machine of a bench that runs elsewhere: see package remote.
type benchWorkerCmd struct {
	Dir string `required:"" type:"path" help:"The worker's own directory, which goes with it."`
}

// Run works until the connection is closed.
func (c *benchWorkerCmd) Run(ctx context.Context) error {
	// When the connection is gone, the worker must still undo everything.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	return remote.Serve(ctx, c.Dir, buildName(), os.Stdin, os.Stdout)
}

// buildName identifies this build of jeoul.
func buildName() string {
	version, commit := cmdkit.Build()
	return version + " " + commit
}

// benchClientCmd is a load generator in this program, which a run starts on its clients.
type benchClientCmd struct {
	Name    string `arg:"" help:"The generator."`
	Options string `arg:"" help:"The load, as JSON."`
}

// Run offers the load, and prints the outcomes.
func (c *benchClientCmd) Run(ctx context.Context) error {
	return load.RunClient(ctx, c.Name, []byte(c.Options), os.Stdout)
}
