// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/sizing"
)

// planCmd computes how many balancers a load needs.
type planCmd struct {
	Balancers int          `name:"balancers" default:"3" placeholder:"N" help:"How many share the VIPs (${default})."`
	Mode      lb.Mode      `name:"mode" enum:"${modes}" default:"l2dsr" placeholder:"MODE" help:"How packets reach backends (${default})."`
	Scheduler lb.Scheduler `name:"scheduler" enum:"${schedulers}" default:"maglev" placeholder:"SCHEDULER" help:"How backends are chosen (${default})."`
	Hook      lb.Hook      `name:"hook" default:"xdp" enum:"xdp,tc" placeholder:"xdp|tc" help:"Where packets are taken (${default})."`
	Backends  int          `name:"backends" default:"10" placeholder:"N" help:"How many backends there are (${default})."`

	PPS   float64 `name:"pps" required:"" placeholder:"N" help:"Packets that come to all balancers each second; where replies go through them, those too."`
	New   float64 `name:"new" default:"0" placeholder:"N" help:"New connections each second."`
	Bits  float64 `name:"bits" default:"0" placeholder:"N" help:"Bits each second, of those packets."`
	Flows float64 `name:"flows" default:"0" placeholder:"N" help:"Connections that are open at once."`

	Cores     float64 `name:"cores" default:"1" placeholder:"N" help:"Cores of a balancer that packets are spread over (${default})."`
	Usage     float64 `name:"usage" default:"0.6" placeholder:"SHARE" help:"Which share of a core, a link or a table may be used, of 1 (${default})."`
	Link      float64 `name:"link" default:"0" placeholder:"BITS" help:"A balancer's link, in bits/s; 0: not asked."`
	FlowLimit float64 `name:"flow-limit" default:"${rememberedFlows}" placeholder:"N" help:"How many flows a balancer remembers, its flows.limit (${default})."`

	Costs    string   `name:"costs" type:"existingfile" placeholder:"FILE" help:"Results of jeoul bench packets on a core of the machine that is planned for: what a packet costs."`
	KnownNs  *float64 `name:"known-ns" placeholder:"NS" help:"Cost of a packet of a known flow, in place of that of --costs."`
	NewNs    *float64 `name:"new-ns" placeholder:"NS" help:"Cost of the first packet of a flow, in place of that of --costs."`
	BesideNs float64  `name:"beside-ns" default:"${besideNs}" placeholder:"NS" help:"Cost of driver and kernel for each packet, which jeoul bench packets does not measure (${default}; in TC rather 1000)."`

	HandOver bool `name:"hand-over" help:"Balancers hand their flows over to each other."`
	cmdkit.OutputFlag
}

// handOverSeconds is the age from which other balancers have a flow, if they hand flows over.
const handOverSeconds = 1

// Help lists the figures of a plan.
func (planCmd) Help() string {
	return `Says how many machines carry a load, so that one may fail, and which flows move, and break, when a router that spreads them by ECMP has one way less, or more.`
}

// Validate rejects flags that make no plan.
func (c *planCmd) Validate() error {
	switch {
	case c.Balancers < 2:
		return fmt.Errorf("--balancers: %d cannot have one fail; use 2 or more", c.Balancers)
	case c.Backends < 1:
		return errors.New("--backends: use 1 or more")
	case c.Costs == "" && (c.KnownNs == nil || c.NewNs == nil):
		return errors.New(
			"the cost of a packet is missing: give --costs FILE, from jeoul bench packets on such a machine, or --known-ns and --new-ns")
	}
	return nil
}

// plan is the command's output.
type plan struct {
	Balancers int            `json:"balancers"`
	Mode      lb.Mode        `json:"mode"`
	Scheduler lb.Scheduler   `json:"scheduler"`
	Load      sizing.Load    `json:"load"`
	Machine   sizing.Machine `json:"machine"`
	Costs     string         `json:"costs"`
	Need      sizing.Need    `json:"need"`
	Rehash    []rehash       `json:"rehash"`
}

// rehash is the effect on one router's flows when a balancer leaves, or comes back.
type rehash struct {
	Hashing sizing.Hashing `json:"hashing"`
	sizing.Moved
	Broken float64 `json:"broken"`
}

// Run computes and prints the plan.
func (c *planCmd) Run() error {
	p, err := c.plan()
	if err != nil {
		return err
	}
	if c.JSON() {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(p)
	}
	return p.write(os.Stdout, c)
}

func (c *planCmd) plan() (*plan, error) {
	p := &plan{Balancers: c.Balancers, Mode: c.Mode, Scheduler: c.Scheduler, Costs: "as given",
		Load:    sizing.Load{NewPerSecond: c.New, PacketsPerSecond: c.PPS, BitsPerSecond: c.Bits, Flows: c.Flows},
		Machine: sizing.Machine{Cores: c.Cores, Usage: c.Usage, BesideNs: c.BesideNs, LinkBits: c.Link}}
	if c.Scheduler.Remembers() || c.Mode.Remembers() {
		p.Machine.FlowLimit = c.FlowLimit
	}
	if err := c.cost(p); err != nil {
		return nil, err
	}
	var err error
	if p.Need, err = sizing.NeedOf(p.Load, p.Machine, c.Balancers); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	flows := sizing.Flows{Mode: c.Mode, Scheduler: c.Scheduler, Backends: c.Backends, HandOver: c.HandOver,
		HandOverSeconds: handOverSeconds,
		Flows:           c.Flows, NewPerSecond: c.New}
	for _, hashing := range sizing.Hashings {
		moved, err := hashing.Leave(c.Balancers)
		if err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		p.Rehash = append(p.Rehash, rehash{hashing, moved, math.Round(flows.Broken(moved))})
	}
	return p, nil
}

// cost sets the CPU cost of a packet.
func (c *planCmd) cost(p *plan) error {
	if c.Costs != "" {
		run, err := results.Load(c.Costs)
		if err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		var known, first bool
		p.Machine.KnownNs, known = packetCost(run, c, "known")
		p.Machine.NewNs, first = packetCost(run, c, "new")
		if !known || !first && c.NewNs == nil {
			return fmt.Errorf(
				"plan: %s has no figure of jeoul-%s-%s by %s for packets of known and of new flows: measure it (jeoul bench packets), or give --known-ns and --new-ns",
				c.Costs, c.Mode, c.Hook, c.Scheduler)
		}
		p.Costs = fmt.Sprintf("%s, %s", c.Costs, run.Environment.CPU)
	}
	if c.KnownNs != nil {
		p.Machine.KnownNs = *c.KnownNs
	}
	if c.NewNs != nil {
		p.Machine.NewNs = *c.NewNs
	}
	return nil
}

// packetCost returns the cost of a packet from results of jeoul bench packets, in nanoseconds net of the harness: the
// median of the repeats with the most flows, over IPv4 and TCP, on the path to the backend.
func packetCost(run *results.Run, c *planCmd, packets string) (float64, bool) {
	var found []float64
	most := -1.0
	for _, t := range run.Trials {
		net, ok := t.Metrics[results.NsNetOfEmpty]
		flows, counted := t.Params["flows"].(float64)
		if !ok || !t.Valid || t.Subject != fmt.Sprintf("jeoul-%s-%s", c.Mode, c.Hook) || !counted ||
			!c.isPlainCase(t.Params, packets) || flows < most {
			continue
		}
		if flows > most {
			found, most = nil, flows
		}
		found = append(found, net)
	}
	if len(found) == 0 {
		return 0, false
	}
	slices.Sort(found)
	return found[len(found)/2], true
}

// isPlainCase reports whether parameters are those of the plain case. Full NAT costs the same with any scheduler,
// because it remembers all flows; a measurement with any of them counts.
func (c *planCmd) isPlainCase(params map[string]any, packets string) bool {
	for _, special := range []string{"tag", "change", "configured"} {
		if params[special] != nil {
			return false
		}
	}
	scheduler := params["scheduler"] == string(c.Scheduler) || c.Mode.Remembers()
	request := params["direction"] == nil || params["direction"] == "request"
	outer := params["outer"] == nil || params["outer"] == "ipv4"
	return scheduler && request && outer && params["packets"] == packets && params["family"] == "ipv4" &&
		params["protocol"] == "tcp"
}

// write prints the plan.
func (p *plan) write(to io.Writer, c *planCmd) error {
	verdict := "enough"
	if !p.Need.Enough {
		verdict = "not enough"
	}
	fmt.Fprintf(to, "%d balancers are %s: the load needs %d, one of which may fail (by its %s)\n\n", p.Balancers,
		verdict, p.Need.Machines, p.Need.By)
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PART\tMACHINES\tUSED\tWITH ONE FAILING")
	for _, part := range p.Need.Parts {
		fmt.Fprintf(table, "%s\t%d + 1\t%.0f %%\t%.0f %%\n", part.Name, part.Machines, 100*part.Used, 100*part.Failing)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(to,
		"of the %.0f %% that may be used; a packet costs %.0f ns, the first of a flow %.0f ns, and %.0f ns beside (%s)\n\n",
		100*p.Machine.Usage, p.Machine.KnownNs, p.Machine.NewNs, p.Machine.BesideNs, p.Costs)
	fmt.Fprintf(to, "When one of %d leaves, or comes back, of all flows (%s, %s):\n", p.Balancers, p.Mode, p.Scheduler)
	table = tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ROUTER\tITS OWN MOVE\tOTHERS MOVE\tBROKEN")
	for _, r := range p.Rehash {
		fmt.Fprintf(table, "%s\t%.1f %%\t%.1f %%\t%.0f of %.0f\n", r.Hashing, 100*r.OfOne, 100*r.Others,
			r.Broken, c.Flows)
	}
	return table.Flush()
}
