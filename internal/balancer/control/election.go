// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/steps"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/control/vips"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// election is the actuator of VRRP: this balancer takes part in the election as a view says. It comes before the other
// actuators, so its cleanup step runs last: a balancer becomes eligible once all that serves the VIPs is in force.
// Packets that still arrive after another balancer has taken the VIPs are served for a while (standby): the data plane
// is always ready, so a planned change of the role loses no packet.
type election struct {
	*core
	routes  *routes
	vips    *vips.VIPs
	desired ops.Election
}

func (e *election) Plan(_, next *view.View) (apply, cleanup []steps.Step) {
	return nil, []steps.Step{{Do: func() error { e.setDesired(next); return nil }}}
}

// electionOf returns the desired election of a view.
func electionOf(v *view.View, drained bool) ops.Election {
	cfg := v.Config.VRRP
	if cfg.ID == 0 {
		return ops.Election{}
	}
	wanted := ops.Election{VRRP: cfg, Interface: cfg.Interface, Priority: cfg.Priority, VIPs: view.VIPsOf(v.Config)}
	if wanted.Interface == "" {
		wanted.Interface = v.Links[0].Name
	}
	slices.SortStableFunc(wanted.VIPs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	if cfg.Weight > 0 {
		penalty := 0
		for i := range v.Config.Services {
			if v.Serving(i) == 0 {
				penalty += int(cfg.Weight)
			}
		}
		wanted.Priority = uint8(max(int(cfg.Priority)-penalty, 1))
	}
	switch {
	case drained:
		wanted.Out = "the balancer is drained"
	case v.Joining != "":
		wanted.Out = v.Joining
	}
	return wanted
}

// setDesired passes the desired election of a view on, once the data plane has that view.
func (e *election) setDesired(v *view.View) {
	if e.opt.Election == nil {
		return
	}
	wanted := electionOf(v, e.routes.drained != nil)
	if reflect.DeepEqual(wanted, e.desired) {
		return
	}
	e.desired = wanted
	e.opt.Election.SetDesired(wanted)
}

// vrrpStatus returns the VRRP status of a view; nil if it does not use VRRP.
func (e *election) vrrpStatus(v *view.View) *ops.VRRP {
	cfg := v.Config.VRRP
	if e.opt.Election == nil || cfg.ID == 0 {
		return nil
	}
	status := &ops.VRRP{ID: cfg.ID, Interface: cfg.Interface, ConfiguredPriority: cfg.Priority,
		IntervalSeconds: cfg.Interval.Seconds(), Preempt: cfg.Preempt}
	if status.Interface == "" {
		status.Interface = v.Links[0].Name
	}
	e.opt.Election.FillStatus(status)
	e.mu.Lock()
	drained := e.routes.drained
	e.mu.Unlock()
	if drained != nil {
		status.Drained = &ops.VRRPDrained{By: drained.By, At: drained.At}
	}
	return status
}

// fillStatus writes the state of VRRP into a status.
func (e *election) fillStatus(v *view.View, status *ops.Status) {
	if status.VRRP = e.vrrpStatus(v); status.VRRP == nil {
		return
	}
	if status.VRRP.Problem != "" {
		status.Problems = append(status.Problems, "VRRP: "+status.VRRP.Problem)
	}
	for _, f := range status.VRRP.Foreign {
		status.Problems = append(status.Problems, "VRRP: "+f.Reason)
	}
	if p := status.VRRP.Peer; status.VRRP.Both && p != nil {
		status.Problems = append(status.Problems,
			fmt.Sprintf("VRRP: %s is active beside this balancer: both hold the VIPs, because %s does not receive this balancer's advertisements, or has only just begun to", p.Address, p.Address))
	}
}

// releaseVIPs removes the addresses that the ending process would leave on the interface for the next one, because
// another balancer has taken them over.
func (e *election) releaseVIPs() {
	if e.opt.Election == nil || e.view.Config.VRRP.ID == 0 {
		return
	}
	e.vips.RemoveAll()
}

// standbyDelay is how long a balancer still balances packets after another one has taken over the VIPs: until the last
// announcement of the other one. A host that has not learnt of the change by then never will, and a backup that served
// it for longer would hide that until it is switched off.
var standbyDelay = vips.AnnounceAt[len(vips.AnnounceAt)-1] + 5*time.Second

// standby makes the data plane of a backup pass packets for the VIPs to the kernel, which does not have the addresses
// either.
type standby struct {
	*core
	plane standbyPlane
	// endTask ends balancing after another balancer has taken the VIPs.
	endTask *loop.Task
}

// standbyPlane is a DataPlane that can pass packets for the VIPs to the kernel.
type standbyPlane interface{ Standby(on bool) }

// Plan's steps come before those of the VIPs: if the kernel had the addresses and got a packet, it would reset the
// connection.
func (s *standby) Plan(before, next *view.View) (apply, cleanup []steps.Step) {
	switch {
	case s.plane == nil || before.Passive == next.Passive:
		return nil, nil
	case next.Passive:
		return nil, []steps.Step{{Do: func() error { s.endTask.Schedule(standbyDelay); return nil }}}
	}
	scheduled := s.endTask.Scheduled()
	return []steps.Step{{
		Do: func() error {
			s.endTask.Cancel()
			s.plane.Standby(false)
			return nil
		},
		Undo: func() error {
			if scheduled {
				s.endTask.Schedule(standbyDelay)
				return nil
			}
			s.plane.Standby(true)
			return nil
		},
	}}, nil
}

// start makes a balancer that starts as a backup pass packets to the kernel. A data plane that the previous process
// left may still receive packets for the VIPs.
func (s *standby) start(first *view.View) {
	switch {
	case s.plane == nil || !first.Passive:
	case s.opt.TakesOver:
		s.endTask.Schedule(standbyDelay)
	default:
		s.plane.Standby(true)
	}
}

// endBalancing makes the data plane of a backup stop balancing.
func (s *standby) endBalancing() {
	if !s.view.Passive {
		return
	}
	s.plane.Standby(true)
	s.opt.Log.Info(
		"packets for the VIPs that still arrive here are no longer balanced: another balancer has announced the VIPs",
		"for", standbyDelay, events.About{Kind: events.KindRole}.Attr())
}
