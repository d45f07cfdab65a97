// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jeoul/jeoul/internal/weigh/sandbox"
)

// SandboxCmd has the programs inside of `jeoul try`: its web servers, and commands on the client, which find them by
// shorter names.
type SandboxCmd struct {
	Serve   sandboxServeCmd   `cmd:"" help:"Answer with a name."`
	Ask     sandboxAskCmd     `cmd:"" help:"Send requests through the balancer, each on a new connection, and count the answers by backend."`
	Crash   sandboxCrashCmd   `cmd:"" help:"Kill a web server."`
	Revive  sandboxReviveCmd  `cmd:"" help:"Start a web server again."`
	Metrics sandboxMetricsCmd `cmd:"" help:"Show what Prometheus would read."`
	Guide   sandboxGuideCmd   `cmd:"" help:"Say what can be done."`
}

type sandboxServeCmd struct {
	Name string `arg:"" help:"Name to answer with."`
}

// Run serves until ctx ends.
func (c *sandboxServeCmd) Run(ctx context.Context) error { return sandbox.Serve(ctx, c.Name) }

type sandboxAskCmd struct {
	Times int `arg:"" optional:"" default:"1" help:"How often (${default})."`
}

// Run sends the requests and prints the counts.
func (c *sandboxAskCmd) Run(ctx context.Context) error {
	if _, err := sandboxDir(); err != nil {
		return err
	}
	return sandbox.Ask(ctx, os.Stdout, sandbox.VIP, c.Times)
}

type sandboxCrashCmd struct {
	Name string `arg:"" help:"Which: web01, web02 or web03."`
}

// Run kills a web server.
func (c *sandboxCrashCmd) Run(ctx context.Context) error { return orderSandbox(ctx, "crash", c.Name) }

type sandboxReviveCmd struct {
	Name string `arg:"" help:"Which: web01, web02 or web03."`
}

// Run starts a web server again.
func (c *sandboxReviveCmd) Run(ctx context.Context) error { return orderSandbox(ctx, "revive", c.Name) }

func orderSandbox(ctx context.Context, verb, name string) error {
	dir, err := sandboxDir()
	if err != nil {
		return err
	}
	return sandbox.SendOrder(ctx, dir, verb, name)
}

type sandboxMetricsCmd struct {
	Prefix string `arg:"" optional:"" help:"Only those whose names begin so."`
}

// Run prints the metrics.
func (c *sandboxMetricsCmd) Run(ctx context.Context) error {
	if _, err := sandboxDir(); err != nil {
		return err
	}
	return sandbox.Metrics(ctx, os.Stdout, c.Prefix)
}

type sandboxGuideCmd struct{}

// Run prints the guide.
func (sandboxGuideCmd) Run() error {
	fmt.Print(sandbox.Guide())
	return nil
}

// sandboxDir returns the directory of the sandbox that this command runs in.
func sandboxDir() (string, error) {
	dir := os.Getenv(sandbox.Directory)
	if dir == "" {
		return "", errors.New("this is a command of a sandbox: start `jeoul try`, and enter it there")
	}
	return dir, nil
}
