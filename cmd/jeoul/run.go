// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/daemon"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/text/terminal"
)

type runCmd struct {
	Config   string `name:"config" short:"c" required:"" type:"path" placeholder:"FILE" help:"Configuration in YAML."`
	Check    bool   `name:"check" help:"Check the file and exit; needs no rights and changes nothing."`
	StateDir string `name:"state-dir" default:"/run/jeoul" type:"path" placeholder:"DIR" help:"Where changes to the network settings are noted, and what another process needs to go on with the data plane of one that was killed (${default})."`
	StoreDir string `name:"store-dir" default:"${storeDir}" type:"path" placeholder:"DIR" help:"Directory of the configuration that came by the API, with one below it for each configuration file; it outlives a reboot (${default})."`
}

// Help describes the signals that the daemon handles.
func (runCmd) Help() string {
	return `Runs until SIGINT or SIGTERM. SIGHUP reads the file again. SIGUSR2 ends the process and leaves its data plane, which the
next start goes on with.`
}

// Run balances until the context ends.
func (c *runCmd) Run(ctx context.Context) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	if c.Check {
		warnings, err := daemon.CheckProxied(ctx, cfg)
		warnings = append(warnings, checkSpeaker(cfg)...)
		for _, warning := range warnings {
			fmt.Fprintf(os.Stderr, "jeoul: warning: %s\n", warning)
		}
		if err != nil {
			return err
		}
		describe(cfg)
		return nil
	}
	happened := events.NewLog(events.DefaultCapacity, time.Now())
	version, _ := cmdkit.Build()
	return daemon.Run(ctx, cfg, daemon.Options{Path: c.Config, StateDir: c.StateDir, StoreDir: c.StoreDir,
		Version: version, Speaker: &bgp.Installed{},
		Log: slog.New(happened.Handler(terminal.NewLogger(os.Stderr).Handler())), Events: happened})
}

// checkSpeaker warns if the host lacks the program that a configuration's BGP needs: the host may still get it before
// it balances.
func checkSpeaker(cfg *config.Config) []string {
	if !cfg.BGP.On() {
		return nil
	}
	if _, err := (&bgp.Installed{}).Build(); err != nil {
		return []string{fmt.Sprintf("bgp: no VIP can be announced: %v", err)}
	}
	return nil
}

// warn prints a checked file's warnings.
func warn(cfg *config.Config) {
	for _, warning := range cfg.Warnings {
		fmt.Fprintf(os.Stderr, "jeoul: warning: %s\n", warning)
	}
}

// describe prints a summary of a checked file.
func describe(cfg *config.Config) {
	warn(cfg)
	backends := 0
	for _, s := range cfg.Services {
		backends += len(s.Backends)
	}
	fmt.Printf("%s: correct: %s %s, services: %d, backends: %d\n",
		cfg.File, cfg.InterfaceField(), strings.Join(cfg.Interfaces, ", "), len(cfg.Services), backends)
	for _, s := range cfg.Services {
		if s.Mode.Marks() {
			fmt.Printf("%s: DSCP %d stands for %s\n", s.Name, s.DSCP, s.VIP)
		}
	}
}
