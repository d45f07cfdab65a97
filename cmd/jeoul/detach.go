// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/daemon"
)

type detachCmd struct {
	Config    string `name:"config" short:"c" type:"path" placeholder:"FILE" xor:"which" required:"" help:"The balancer's configuration."`
	Interface string `name:"interface" placeholder:"NAME" xor:"which" required:"" help:"Its first interface, where the configuration cannot be read."`
	All       bool   `name:"all" short:"a" xor:"which" required:"" help:"All balancers of this network namespace that have no process."`
	StateDir  string `name:"state-dir" default:"/run/jeoul" type:"path" placeholder:"DIR" help:"As for jeoul run (${default})."`
}

// Run removes the programs and settings that earlier processes left on the host.
func (c *detachCmd) Run() error {
	if c.All {
		return daemon.DetachAll(os.Stdout, c.StateDir)
	}
	links := []string{c.Interface}
	if c.Config != "" {
		cfg, err := config.Load(c.Config)
		if err != nil {
			return err
		}
		links = cfg.Interfaces
	}
	return daemon.Detach(os.Stdout, links, c.StateDir)
}
