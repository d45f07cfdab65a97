// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

type getFlowsCmd struct {
	cmdkit.DaemonFlags
	getOutput
	Of     []string       `arg:"" optional:"" name:"service/backend" predictor:"part" help:"Services, such as web, or backends, such as web/web01; all where none is named."`
	Client clientNetwork  `name:"client" placeholder:"NETWORK" help:"Only flows of clients in this network, such as 192.0.2.0/24, or of this address."`
	States []lb.FlowState `name:"state" enum:"${flowStates}" placeholder:"STATE" help:"Only flows in these states: ${enum}."`
	Limit  int            `name:"limit" default:"${flowLimit}" placeholder:"N" help:"Show so many at most, 1 to ${mostFlows} (${default})."`
}

// clientNetwork is a network of clients, or the address of one client.
type clientNetwork struct{ netip.Prefix }

// UnmarshalText reads a network or an address.
func (n *clientNetwork) UnmarshalText(text []byte) (err error) {
	n.Prefix, err = api.ParseClients(string(text))
	return err
}

// Validate rejects flags that the daemon would reject anyway.
func (c *getFlowsCmd) Validate() error {
	if c.Limit < 1 || c.Limit > ops.MaxFlows {
		return fmt.Errorf("--limit %d is out of range: 1 to %d", c.Limit, ops.MaxFlows)
	}
	return nil
}

// Run prints flows.
func (c *getFlowsCmd) Run(ctx context.Context) error {
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	list, err := client.Flows(ctx, ops.FlowQuery{Of: c.Of, Client: c.Client.Prefix, States: c.States, Limit: c.Limit})
	if err != nil {
		return err
	}
	return writeFlows(os.Stdout, os.Stderr, c.Output, list)
}

// writeFlows prints flows, and notes if there are more.
func writeFlows(to, says io.Writer, format string, list *ops.FlowList) error {
	out := &getWriter[ops.Flow]{to: to, kind: flowKind, format: format}
	if err := out.list(list.Flows, nil); err != nil {
		return err
	}
	if shown := uint64(len(list.Flows)); shown < list.Matching {
		fmt.Fprintf(says, "jeoul: %s of %s flows; name a backend, --client, --state or another --limit\n", cmdkit.Count(shown),
			cmdkit.Count(list.Matching))
	}
	return nil
}

var flowKind = kind[ops.Flow]{
	noun: "flow",
	name: func(f ops.Flow) string { return f.Client.String() },
	columns: []getColumn[ops.Flow]{
		{name: "client", value: func(f ops.Flow) any { return f.Client }},
		{name: "backend", value: func(f ops.Flow) any { return f.Service + "/" + f.Backend }},
		{name: "state", value: func(f ops.Flow) any { return f.State }},
		{name: "silent", right: true, value: func(f ops.Flow) any {
			return time.Duration(f.SilentSeconds * float64(time.Second)).Round(time.Second)
		}},
		{name: "proven", wide: true, value: func(f ops.Flow) any { return f.Proven }},
		{name: "source", wide: true, value: func(f ops.Flow) any {
			if f.Source == nil {
				return "-"
			}
			return f.Source
		}},
	},
}
