// SPDX-License-Identifier: Apache-2.0

package operatecmd

import (
	"context"
	"fmt"
	"os"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
)

// sourceFlags are the flags that name a file and the source of configuration that it becomes.
type sourceFlags struct {
	cmdkit.DaemonFlags
	File   string `name:"file" short:"f" required:"" type:"existingfile" placeholder:"FILE" help:"Services in YAML, as in a configuration."`
	Source string `name:"owner" default:"api" placeholder:"SOURCE" help:"The source of configuration that these services become, all of it (${default})."`
}

// ApplyCmd configures a running balancer.
type ApplyCmd struct {
	sourceFlags
	DryRun bool `name:"dry-run" help:"Change nothing: check the file, and print what would be different."`
}

// Help explains when the command returns.
func (ApplyCmd) Help() string {
	return `Returns when the data plane has the services, or with the reason why it does not.`
}

// Run returns when the services are in force, or with the reason why they are not.
func (c *ApplyCmd) Run(ctx context.Context) error {
	text, err := os.ReadFile(c.File)
	if err != nil {
		return err
	}
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	change, err := client.Apply(ctx, c.Source, text, c.DryRun)
	switch {
	case err != nil:
		return err
	case !change.Changed:
		fmt.Printf("nothing to change in source %s, generation %d\n", change.Source, change.Generation)
	case c.DryRun:
		writeDifference(os.Stdout, change.Difference, coloured())
	default:
		fmt.Printf("applied source %s, generation %d\n", change.Source, change.Generation)
	}
	return nil
}
