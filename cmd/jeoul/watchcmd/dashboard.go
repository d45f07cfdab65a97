// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"context"
	"io"
	"os"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/dashboard"
)

// DashboardCmd shows a balancer in a browser of this host.
type DashboardCmd struct {
	cmdkit.DaemonFlags
	Port uint16 `name:"port" placeholder:"PORT" help:"Port of 127.0.0.1 that the page is served on; without it, a free one."`
}

// Help explains access to the dashboard.
func (DashboardCmd) Help() string {
	return `The command prints a link and serves the dashboard on the loopback address until you interrupt it. The link
contains a random token: anyone with the link has your rights. From another machine: ssh -L PORT:127.0.0.1:PORT HOST.
With api.listen set, the balancer serves the dashboard itself.`
}

// Run serves the page until the context ends, and prints the link.
func (c *DashboardCmd) Run(ctx context.Context) error { return c.Serve(ctx, os.Stdout) }

// Serve serves the page until the context ends, and writes the link to out.
func (c *DashboardCmd) Serve(ctx context.Context, out io.Writer) error {
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	proxy, err := client.Proxy()
	if err != nil {
		return err
	}
	return dashboard.ServeLocal(ctx, c.Port, out, proxy)
}
