// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// Election is a Role that balancers of a segment agree on.
type Election interface {
	Role
	// Keeping says that the VIPs are held as a process before has left them, or as before there was an election. Another
	// balancer may have them: they are not announced.
	Keeping() bool
	// Announcements counts how often the VIPs are to be announced to the neighbours again, beside when they are taken;
	// Changes is signalled after each.
	Announcements() uint64
	// Want says how this balancer takes part from now on. It does not wait for what comes of it.
	Want(ops.Election)
	// Show fills in how the election is.
	Show(*ops.VRRP)
}

// election has this balancer take part as a view says. It comes before what is brought, and asks at the end: a balancer
// takes the VIPs with all that serves them in force. What still arrives when they have gone to another one is served:
// the data plane is ready all the time, so a planned change of the role loses no packet.
type election struct {
	c      *Controller
	wanted ops.Election
}

func (e *election) change(_, next *view) (bring, retire []step) {
	return nil, []step{{do: func() error { e.follow(next); return nil }}}
}

// election is what is asked for by a view.
func (v *view) election(drained bool) ops.Election {
	cfg := v.cfg.VRRP
	if cfg.ID == 0 {
		return ops.Election{}
	}
	wanted := ops.Election{VRRP: cfg, Interface: cfg.Interface, Priority: cfg.Priority, VIPs: vipsOf(v.cfg)}
	if wanted.Interface == "" {
		wanted.Interface = v.links[0].Name
	}
	slices.SortStableFunc(wanted.VIPs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	if cfg.Weight > 0 {
		falls := 0
		for i := range v.cfg.Services {
			if v.serving(i) == 0 {
				falls += int(cfg.Weight)
			}
		}
		wanted.Priority = uint8(max(int(cfg.Priority)-falls, 1))
	}
	switch {
	case drained:
		wanted.Out = "the balancer is drained"
	case v.joining != "":
		wanted.Out = v.joining
	}
	return wanted
}

// follow asks for what follows from a view. It is not before the data plane has it.
func (e *election) follow(v *view) {
	if e.c.opt.Election == nil {
		return
	}
	wanted := v.election(e.c.routes.drained != nil)
	if reflect.DeepEqual(wanted, e.wanted) {
		return
	}
	e.wanted = wanted
	e.c.opt.Election.Want(wanted)
}

// vrrpStatus is how the VIPs are shared by a view; nil where they are not.
func (c *Controller) vrrpStatus(v *view) *ops.VRRP {
	cfg := v.cfg.VRRP
	if c.opt.Election == nil || cfg.ID == 0 {
		return nil
	}
	status := &ops.VRRP{ID: cfg.ID, Interface: cfg.Interface, ConfiguredPriority: cfg.Priority, IntervalSeconds: cfg.Interval.Seconds(), Preempt: cfg.Preempt}
	if status.Interface == "" {
		status.Interface = v.links[0].Name
	}
	c.opt.Election.Show(status)
	c.mu.Lock()
	drained := c.routes.drained
	c.mu.Unlock()
	if drained != nil {
		status.Drained = &ops.VRRPDrained{By: drained.By, At: drained.At}
	}
	return status
}

// showElection adds how the VIPs are shared to a status.
func (c *Controller) showElection(v *view, status *ops.Status) {
	if status.VRRP = c.vrrpStatus(v); status.VRRP == nil {
		return
	}
	if status.VRRP.Problem != "" {
		status.Problems = append(status.Problems, "VRRP: "+status.VRRP.Problem)
	}
	for _, f := range status.VRRP.Foreign {
		status.Problems = append(status.Problems, "VRRP: "+f.Reason)
	}
	if p := status.VRRP.Peer; status.VRRP.Both && p != nil {
		status.Problems = append(status.Problems, fmt.Sprintf("VRRP: %s is active beside this balancer: both hold the VIPs, for %s does not hear this one, or has just begun to", p.Address, p.Address))
	}
}

// giveUp takes the addresses off that a process which ends would leave to the next, for another balancer has taken
// them over.
func (c *Controller) giveUp() {
	if c.opt.Election == nil || c.view.cfg.VRRP.ID == 0 {
		return
	}
	c.vips.remove(c.vips.link.Name, c.vips.held)
}
