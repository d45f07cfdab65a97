// SPDX-License-Identifier: Apache-2.0

package operatecmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// BalancerCmd has the commands for a running balancer as a whole, among those that share its VIPs.
type BalancerCmd struct {
	Drain   balancerDrainCmd   `cmd:"" help:"Leave the VIPs to other balancers."`
	Undrain balancerUndrainCmd `cmd:"" help:"Announce the VIPs again, and take part in VRRP."`
}

// Help explains how the VIPs leave this balancer.
func (balancerDrainCmd) Help() string {
	return `Routers have this balancer as the last choice (GRACEFUL_SHUTDOWN) at first, and later not at all. By VRRP another balancer
takes the VIPs over at once. A drain outlives restarts.`
}

type balancerDrainCmd struct {
	cmdkit.DaemonFlags
	Wait bool `name:"wait" help:"Return when the VIPs are withdrawn."`
}

// Run drains the balancer, and waits if --wait is given.
func (c *balancerDrainCmd) Run(ctx context.Context) error {
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	come, err := client.Drain(ctx, true)
	if err != nil {
		return err
	}
	if come.VRRP != nil {
		fmt.Println("drained: the VIPs are left to other balancers of the segment")
	}
	bgp := come.BGP
	if bgp.Drained == nil {
		if c.Wait {
			return awaitWithdrawn(ctx, client)
		}
		return nil
	}
	fmt.Printf("drained: routers have this balancer as the last choice, and from %s on not at all\n",
		bgp.Drained.Withdrawn.Local().Format(time.TimeOnly))
	if !c.Wait {
		return nil
	}
	return awaitWithdrawn(ctx, client)
}

// errUndrained ends waiting for a drain that was undone.
var errUndrained = errors.New("the balancer is drained no more")

// awaitWithdrawn returns when no VIP is announced.
func awaitWithdrawn(ctx context.Context, client *api.Client) error {
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	for {
		status, err := client.Status(ctx)
		if err != nil {
			return err
		}
		switch {
		case (status.BGP == nil || status.BGP.Drained == nil) && (status.VRRP == nil || status.VRRP.Drained == nil):
			return errUndrained
		case (status.BGP == nil || !announcing(status.BGP)) &&
			(status.VRRP == nil || status.VRRP.State == "initialize"):
			fmt.Println("withdrawn")
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
	}
}

func announcing(bgp *ops.BGP) bool {
	for _, v := range bgp.VIPs {
		if v.Announced {
			return true
		}
	}
	return false
}

type balancerUndrainCmd struct {
	cmdkit.DaemonFlags
}

// Run ends a drain.
func (c *balancerUndrainCmd) Run(ctx context.Context) error {
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	come, err := client.Drain(ctx, false)
	if err != nil {
		return err
	}
	if come.VRRP != nil {
		fmt.Println("drained no more: this balancer takes part in VRRP")
	}
	if come.ASN == 0 {
		return nil
	}
	announced := 0
	for _, v := range come.VIPs {
		if v.Announced {
			announced++
		}
	}
	fmt.Printf("drained no more: %d of %d VIPs are announced\n", announced, len(come.VIPs))
	return nil
}
