// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/datapath"
	"github.com/jeoul/jeoul/internal/datapath/pins"
	"github.com/jeoul/jeoul/internal/hostnet"
	"github.com/jeoul/jeoul/internal/namespace"
)

type detachCmd struct {
	Config    string `name:"config" short:"c" type:"path" placeholder:"FILE" xor:"which" required:"" help:"The balancer's configuration."`
	Interface string `name:"interface" placeholder:"NAME" xor:"which" required:"" help:"Its first interface, where the configuration cannot be read."`
	StateDir  string `name:"state-dir" default:"/run/jeoul" type:"path" placeholder:"DIR" help:"As for jeoul run (${default})."`
}

// Run takes away what a process has left. The VIPs go before the data plane, as in a stop.
func (c *detachCmd) Run() error {
	links := []string{c.Interface}
	if c.Config != "" {
		cfg, err := config.Load(c.Config)
		if err != nil {
			return err
		}
		links = cfg.Interfaces
	}
	at, err := instanceOn(links[0], c.StateDir)
	if err != nil {
		return err
	}
	store, err := pins.Find(at.stateDir, at.name)
	if err != nil && !errors.Is(err, pins.ErrNothing) {
		return err
	}
	changes, err := hostnet.Open(at.stateDir, at.journal)
	if err != nil {
		return err
	}
	events := changes.Events()
	err = changes.Close()
	for _, event := range append(events, changes.Events()...) {
		fmt.Println(event)
	}
	err = errors.Join(err, at.forgetAliases(""))
	if store == nil {
		fmt.Printf("no data plane was left on %s\n", links[0])
		return err
	}
	dir := store.Dir()
	err = errors.Join(err, datapath.Detach(at.keep(store), links), noted(at.file("operations")).forget(), noted(at.file("health")).forget())
	if err == nil {
		fmt.Printf("detached: %s\n", dir)
	}
	return err
}

// kept describes the data planes that are attached in this network namespace and have no
// process, a line each; empty where there are none.
func kept(stateDir string) (lines []string) {
	ns, err := namespace.Current()
	if err != nil {
		return nil
	}
	defer ns.Close()
	for _, name := range pins.Instances(stateDir) {
		if !strings.HasSuffix(name, fmt.Sprintf("-%d", ns.Inode())) {
			continue
		}
		store, err := pins.Find(stateDir, name)
		if err != nil {
			continue // it has a process
		}
		at := instance{stateDir: stateDir, name: name}
		lines = append(lines, describeKept(at.keep(store)))
		store.Close()
	}
	return lines
}

func describeKept(keep *datapath.Keep) string {
	k, err := datapath.ReadKept(keep)
	if err != nil {
		return fmt.Sprintf("a data plane without a process is kept in %s: %v", k.Dir, err)
	}
	return fmt.Sprintf("a data plane without a process is on %s: services: %d, last changed at %s; %s; start the daemon to go on with it, or take it away with `jeoul detach --interface %s`",
		strings.Join(k.Interfaces, ", "), k.Services, k.Changed.Format(time.DateTime), forwardsUntil(k.Aside, time.Now()), k.Interfaces[0])
}

// forwardsUntil says for how long a data plane without a process forwards, or since when it does
// not.
func forwardsUntil(aside, now time.Time) string {
	switch {
	case aside.IsZero():
		return "it forwards for ever"
	case aside.After(now):
		return fmt.Sprintf("it forwards until %s (for %s)", aside.Format(time.DateTime), aside.Sub(now).Round(time.Second))
	}
	return fmt.Sprintf("it has left packets for its VIPs to the kernel since %s (for %s)", aside.Format(time.DateTime), now.Sub(aside).Round(time.Second))
}
