// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/jeoul/jeoul/internal/agent"
	"github.com/jeoul/jeoul/internal/hostnet"
)

type agentCmd struct {
	VIP      []netip.Addr `name:"vip" required:"" placeholder:"ADDRESS" help:"VIP to accept on this host, IPv4 or IPv6; may be repeated."`
	StateDir string       `name:"state-dir" default:"/run/jeoul" type:"path" placeholder:"DIR" help:"Where the changes are noted, so that the next start takes back what a killed agent has left (${default})."`
}

// Run prepares this host as a backend, and takes everything back when ctx ends.
func (c *agentCmd) Run(ctx context.Context) error {
	a, err := agent.Start(agent.Options{VIPs: c.VIP, Dir: c.StateDir})
	if err != nil {
		return err
	}
	printEvents(a.Events())
	fmt.Println("ready; Ctrl-C or SIGTERM takes it all back")
	<-ctx.Done()
	err = a.Close()
	printEvents(a.Events())
	if err != nil {
		return errors.Join(err, errors.New("start `jeoul agent` again, and it tries again"))
	}
	return nil
}

func printEvents(events []hostnet.Event) {
	for _, event := range events {
		fmt.Println(event)
	}
}
