// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
)

// reloadCmd has a running balancer read its file again.
type reloadCmd struct {
	daemonFlags
}

// Run returns when the file is in force, or with the reason why it is not.
func (c *reloadCmd) Run(ctx context.Context) error {
	client, err := c.client()
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
