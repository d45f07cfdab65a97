// SPDX-License-Identifier: Apache-2.0

package operatecmd

import (
	"context"
	"fmt"
	"os"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
)

// ReloadCmd makes a running balancer read its file again.
type ReloadCmd struct {
	cmdkit.DaemonFlags
}

// Run returns when the file is in force, or with the reason why it is not.
func (c *ReloadCmd) Run(ctx context.Context) error {
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	done, err := client.Reload(ctx)
	if err == nil {
		fmt.Println("reloaded " + done.File)
		for _, warning := range done.Warnings {
			fmt.Fprintln(os.Stderr, "jeoul: warning: "+warning)
		}
	}
	return err
}
