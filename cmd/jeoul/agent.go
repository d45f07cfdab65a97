// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/capabilities"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/systemd"
	"github.com/jeoul/jeoul/internal/text/terminal"
	"github.com/jeoul/jeoul/internal/tools/agent"
)

type agentCmd struct {
	VIP       []netip.Addr `name:"vip" placeholder:"ADDRESS" help:"VIP to accept on this host, IPv4 or IPv6; may be repeated."`
	Mode      []lb.Mode    `name:"mode" enum:"${modes}" placeholder:"MODE" help:"How the balancer sends packets here: l2dsr (default), ipip, gue or dscp; may be repeated. With --check also nat and fullnat."`
	DSCP      []agent.Mark `name:"dscp" placeholder:"N=ADDRESS" help:"Mode dscp: the code point that stands for a VIP; may be repeated."`
	Interface []string     `name:"interface" placeholder:"NAME" help:"Where packets arrive and leave; may be repeated (all Ethernet interfaces that are up). Modes ipip, gue and dscp, and --mss."`
	MSS       uint16       `name:"mss" placeholder:"BYTES" help:"Make the MSS that SYN-ACKs from a VIP offer no larger than this, so that clients' segments fit into a tunnel."`
	Hook      agent.Hook   `name:"attach" enum:"auto,tcx,clsact" default:"auto" placeholder:"auto|tcx|clsact" help:"How the eBPF program is attached (${default}: tcx, which needs Linux 6.6, or else clsact)."`
	Check     bool         `name:"check" help:"Change nothing; say for each mode (all of them, if none is named) whether this host is ready and what is missing. Exit status 1 if a mode that was named is not ready."`
	StateDir  string       `name:"state-dir" default:"/run/jeoul" type:"path" placeholder:"DIR" help:"Where the changes are noted, so that the next start takes back what a killed agent has left (${default})."`
}

// Help describes the agent's effect and lifetime.
func (agentCmd) Help() string {
	return `Accepts packets for VIPs without answering ARP or NDP for them, until SIGINT or SIGTERM, and takes everything back then.`
}

// Validate rejects a command line without an action.
func (c *agentCmd) Validate() error {
	if !c.Check && len(c.VIP)+len(c.DSCP) == 0 {
		return errors.New("no VIP was given: say --vip ADDRESS, or --dscp N=ADDRESS")
	}
	return nil
}

// Run prepares this host as a backend, and undoes everything when ctx ends.
func (c *agentCmd) Run(ctx context.Context) error {
	opt := agent.Options{VIPs: c.VIP, Modes: c.Mode, Marks: c.DSCP, MSS: c.MSS, Interfaces: c.Interface, Hook: c.Hook,
		Dir: c.StateDir}
	if c.Check {
		return c.check(opt)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	defer signal.Stop(asked)
	a, err := agent.Start(opt)
	if err != nil {
		return capabilities.Explain(err, capabilities.BPF, capabilities.NetAdmin, capabilities.Perfmon)
	}
	printEvents(a.Events())
	if at := a.Attachments(); len(at) > 0 {
		fmt.Printf("at work on %s; SIGUSR1 prints the counters\n", cmdkit.Joined(at))
	}
	fmt.Println("ready; Ctrl-C or SIGTERM takes it all back")
	log := terminal.NewLogger(os.Stderr)
	service := systemd.New(log)
	service.Ready()
	watched := make(chan struct{})
	watching, end := context.WithCancel(ctx)
	go func() {
		defer close(watched)
		a.Watch(watching, log, func(problems []string) { service.Status(agentStatus(problems)) })
	}()
	err = c.serve(ctx, a, asked)
	end()
	<-watched
	service.Stopping()
	err = errors.Join(err, a.Close())
	printEvents(a.Events())
	if counts, countErr := a.Counts(); countErr == nil {
		writeAgentCounts(os.Stdout, counts)
	}
	if err != nil {
		return errors.Join(err, errors.New("start `jeoul agent` again, and it tries again"))
	}
	return nil
}

// agentStatus is the unit's status text in `systemctl status`.
func agentStatus(problems []string) string {
	if len(problems) == 0 {
		return "this host is ready"
	}
	return "this host is not ready: " + strings.Join(problems, "; ")
}

// check prints the findings for each mode.
func (c *agentCmd) check(opt agent.Options) error {
	all, err := agent.Check(opt)
	if err != nil {
		return err
	}
	var unready []string
	for i, r := range all {
		if i > 0 {
			fmt.Println()
		}
		writeReadiness(os.Stdout, r)
		if !r.Ready() && slices.Contains(c.Mode, r.Mode) {
			unready = append(unready, string(r.Mode))
		}
	}
	if len(unready) > 0 {
		return fmt.Errorf("this host is not ready for mode %s", strings.Join(unready, ", "))
	}
	return nil
}

func writeReadiness(w io.Writer, r agent.Readiness) {
	word := "ready"
	if !r.Ready() {
		word = "not ready"
	}
	fmt.Fprintf(w, "%s: %s\n", r.Mode, word)
	t := cmdkit.NewTable(w, "what", "state", "detail")
	for _, f := range r.Findings {
		t.AppendRow(table.Row{f.What, f.State, f.Text})
	}
	t.Render()
}

// serve prints the counters whenever a signal asks for them, until ctx ends.
func (c *agentCmd) serve(ctx context.Context, a *agent.Agent, asked <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-asked:
			counts, err := a.Counts()
			if err != nil {
				return err
			}
			writeAgentCounts(os.Stdout, counts)
		}
	}
}

// writeAgentCounts prints the packet counters; mode l2dsr has none.
func writeAgentCounts(w io.Writer, counts []agent.Count) {
	if len(counts) == 0 {
		return
	}
	t := cmdkit.NewTable(w, "mode", "outcome", "packets", "meaning")
	cmdkit.RightAlign(t, "packets")
	shown := 0
	for _, c := range counts {
		if c.Packets == 0 {
			continue
		}
		t.AppendRow(table.Row{cmdkit.OrDash(string(c.Mode)), c.Outcome, cmdkit.Count(c.Packets), c.Help})
		shown++
	}
	if shown == 0 {
		fmt.Fprintln(w, "no packet so far")
		return
	}
	t.Render()
}

func printEvents(events []hostnet.Event) {
	for _, event := range events {
		fmt.Println(event)
	}
}
