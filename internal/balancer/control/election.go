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

// election has this balancer take part as a view says. It is the first actuator, and stands for election at the end: a
// balancer takes the VIPs when all that serves them is in force. Packets that still arrive after the VIPs have gone to
// another balancer are served for a while (standby): the data plane is ready all the time, so a planned change of the
// role loses no packet.
type election struct {
	*core
	routes *routes
	vips   *vips.VIPs
	wanted ops.Election
}

func (e *election) Change(_, next *view.View) (bring, retire []steps.Step) {
	return nil, []steps.Step{{Do: func() error { e.follow(next); return nil }}}
}

// electionOf returns the election that a view asks for.
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
		falls := 0
		for i := range v.Config.Services {
			if v.Serving(i) == 0 {
				falls += int(cfg.Weight)
			}
		}
		wanted.Priority = uint8(max(int(cfg.Priority)-falls, 1))
	}
	switch {
	case drained:
		wanted.Out = "the balancer is drained"
	case v.Joining != "":
		wanted.Out = v.Joining
	}
	return wanted
}

// follow asks for the election of a view, once the data plane has that view.
func (e *election) follow(v *view.View) {
	if e.opt.Election == nil {
		return
	}
	wanted := electionOf(v, e.routes.drained != nil)
	if reflect.DeepEqual(wanted, e.wanted) {
		return
	}
	e.wanted = wanted
	e.opt.Election.Want(wanted)
}

// vrrpStatus is how the VIPs are shared by a view; nil where they are not.
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
	e.opt.Election.Show(status)
	e.mu.Lock()
	drained := e.routes.drained
	e.mu.Unlock()
	if drained != nil {
		status.Drained = &ops.VRRPDrained{By: drained.By, At: drained.At}
	}
	return status
}

// showElection adds how the VIPs are shared to a status.
func (e *election) showElection(v *view.View, status *ops.Status) {
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
			fmt.Sprintf("VRRP: %s is active beside this balancer: both hold the VIPs, for %s does not hear this one, or has just begun to", p.Address, p.Address))
	}
}

// giveUp takes the addresses off that a process which ends would leave to the next, for another balancer has taken
// them over.
func (e *election) giveUp() {
	if e.opt.Election == nil || e.view.Config.VRRP.ID == 0 {
		return
	}
	e.vips.GiveUp()
}

// balancesOn is for how long a balancer whose VIPs another one has taken over balances packets that still arrive: until
// that one has made the last of its announcements. A host that does not know the change by then will not learn of it,
// and a backup that went on for it would hide that until it is switched off.
var balancesOn = vips.AnnounceAt[len(vips.AnnounceAt)-1] + 5*time.Second

// standby has the data plane of a backup leave packets for the VIPs to the kernel, which does not have them either.
type standby struct {
	*core
	plane standbyPlane
	// end is when balancing ends after the VIPs have gone to another balancer.
	end *loop.Task
}

// standbyPlane is a DataPlane that can leave packets for the VIPs to the kernel.
type standbyPlane interface{ Standby(on bool) }

// Change comes before the VIPs' steps: the kernel that has them and gets a packet would reset its connection.
func (s *standby) Change(before, next *view.View) (bring, retire []steps.Step) {
	switch {
	case s.plane == nil || before.Passive == next.Passive:
		return nil, nil
	case next.Passive:
		return nil, []steps.Step{{Do: func() error { s.end.In(balancesOn); return nil }}}
	}
	ends := s.end.On()
	return []steps.Step{{
		Do: func() error {
			s.end.Off()
			s.plane.Standby(false)
			return nil
		},
		Undo: func() error {
			if ends {
				s.end.In(balancesOn)
				return nil
			}
			s.plane.Standby(true)
			return nil
		},
	}}, nil
}

// begin has a balancer that starts as the backup leave packets to the kernel. A data plane that the previous process
// left may still get the VIPs' packets.
func (s *standby) begin(first *view.View) {
	switch {
	case s.plane == nil || !first.Passive:
	case s.opt.TakesOver:
		s.end.In(balancesOn)
	default:
		s.plane.Standby(true)
	}
}

// stop ends balancing.
func (s *standby) stop() {
	if !s.view.Passive {
		return
	}
	s.plane.Standby(true)
	s.opt.Log.Info(
		"packets for the VIPs that still arrive here are not balanced any more: another balancer has announced the VIPs",
		"for", balancesOn, events.About{Kind: events.KindRole}.Attr())
}
