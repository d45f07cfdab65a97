// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/top"
	"github.com/jeoul/jeoul/internal/text/terminal"
)

// TopCmd shows a running balancer live.
type TopCmd struct {
	cmdkit.DaemonFlags
	cmdkit.OutputFlag
	View     string        `name:"view" enum:"${topViews}" default:"services" placeholder:"VIEW" help:"The table that is shown first: ${topViews} (${default})."`
	Sort     string        `name:"sort" placeholder:"COLUMN" help:"The column to sort by, such as new/s."`
	Filter   string        `name:"filter" placeholder:"WORDS" help:"Show only rows that contain all of these words."`
	All      bool          `name:"all" short:"a" help:"Show kinds of drops that no packet met, too."`
	Interval time.Duration `name:"interval" default:"${topInterval}" placeholder:"DURATION" help:"Time from one reading to the next (${default})."`
	ReadOnly bool          `name:"read-only" help:"Refuse every operation."`
	Once     bool          `name:"once" help:"Read twice, an interval apart, print the table once, and end."`
}

// Help lists the keys.
func (TopCmd) Help() string {
	return `Keys 1 to 6 show services, backends, drops, balancers, limits and operations; ? lists the others. Drain, enable, disable and ` +
		`weight ask before they do anything. Rates come from the counters of the API, and nothing else needs to run. ` +
		`On a terminal that cannot place text (TERM=dumb) the table is printed again every five seconds.`
}

// Validate rejects flags that contradict each other.
func (c *TopCmd) Validate() error {
	if c.Interval < top.MinInterval {
		return fmt.Errorf("--interval %s is too short: at least %s", c.Interval, top.MinInterval)
	}
	if c.JSON() && !c.Once {
		return fmt.Errorf("--output json goes with --once")
	}
	return nil
}

// plainInterval is the least time between two tables on a terminal on which they scroll.
const plainInterval = 5 * time.Second

// Run shows the balancer until the context ends.
func (c *TopCmd) Run(ctx context.Context) error {
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	options := top.Options{
		Balancer: topClient{client, c.DaemonFlags},
		At:       client.At(),
		View:     top.View(c.View),
		Sort:     c.Sort,
		Filter:   c.Filter,
		Interval: c.Interval,
		All:      c.All,
		ReadOnly: c.ReadOnly,
		ASCII:    !top.UTF8(),
		Now:      time.Now,
	}
	switch {
	case c.Once:
		return top.Once(ctx, options, os.Stdout, c.JSON())
	case !terminal.Is(os.Stdout) || !terminal.Is(os.Stdin):
		return top.ErrNoTerminal
	case top.Dumb():
		options.Interval = max(options.Interval, plainInterval)
		return top.Report(ctx, options, os.Stdout)
	}
	return top.Run(ctx, options, os.Stdin, os.Stdout, os.Environ())
}

// topClient is a balancer whose services and backends are described in the form of `jeoul describe`.
type topClient struct {
	*api.Client
	flags cmdkit.DaemonFlags
}

// Operate changes the balancer. A rejection is in the daemon's own words: the screen shows which daemon it is.
func (d topClient) Operate(ctx context.Context, order ops.Order) (*ops.Operation, error) {
	done, err := d.Client.Operate(ctx, order)
	var refusal *api.Problem
	if errors.As(err, &refusal) {
		return nil, refusal
	}
	return done, err
}

// Describe returns everything about a service, or about one of its backends.
func (d topClient) Describe(ctx context.Context, service, backend string) (string, error) {
	found, err := fetchDescription(ctx, d.flags, service, backend)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	if backend == "" {
		found.writeService(&text, time.Now())
	} else {
		found.writeBackend(&text, time.Now())
	}
	return text.String(), nil
}
