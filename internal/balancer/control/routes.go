// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/steps"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/host/durable"
)

const (
	// takeoverHold is how long no route is withdrawn after a takeover: until then, not all paths and verdicts that the
	// previous process had are known again.
	takeoverHold = 5 * time.Second
	// withdrawTimeout bounds how long a change waits until a removed VIP is withdrawn from routers.
	withdrawTimeout = time.Second
)

// routes announces the VIPs that this balancer serves to routers. It is the first actuator: routes are withdrawn before
// anything else is removed, and announced after everything else is in force.
type routes struct {
	*core
	election   *election
	routesTask *loop.Task
	// desired are the routes requested last.
	desired ops.Routes
	// logged are the routes logged last.
	logged ops.Routes
	// previous are the VIPs that the previous process's speaker announced at the start.
	previous []netip.Addr
	// inherited are VIPs that are not withdrawn before inheritedUntil.
	inherited      map[netip.Addr]bool
	inheritedUntil time.Time
	// drained is nil if the balancer is not drained. Status reads it, under the controller's lock.
	drained *savedDrain
}

// savedDrain is the saved form of a drain of the balancer; At is by the wall clock of Clock.
type savedDrain struct {
	By    string        `json:"by"`
	At    time.Time     `json:"at"`
	Clock clock.Reading `json:"clock,omitzero"`
}

func (r *routes) Plan(before, next *view.View) (apply, cleanup []steps.Step) {
	if r.opt.Routes == nil || !before.Config.BGP.On() && !next.Config.BGP.On() || r.isDeferred(next) {
		return nil, nil
	}
	previous, remaining := r.desired, r.desiredFor(next)
	remaining.VIPs, remaining.Pool = intersect(previous.VIPs, remaining.VIPs), intersect(previous.Pool, remaining.Pool)
	remaining.Backup = intersect(previous.Backup, remaining.Backup)
	if len(remaining.VIPs) < len(previous.VIPs) || len(remaining.Pool) < len(previous.Pool) ||
		len(remaining.Backup) < len(previous.Backup) {
		remaining.BGP, remaining.Draining, remaining.Orphan = previous.BGP, previous.Draining, previous.Orphan
		apply = []steps.Step{{
			Do: func() error {
				r.setDesired(remaining)
				r.opt.Routes.WaitAnnounced(withdrawTimeout)
				return nil
			},
			Undo: func() error {
				r.setDesired(previous)
				return nil
			},
		}}
	}
	return apply, []steps.Step{{Do: func() error {
		r.update(next)
		if before.Layout != next.Layout {
			r.opt.Routes.SetDesired(r.desired) // again: a password's file may have changed
		}
		return nil
	}}}
}

// intersect returns the addresses that are in both lists, in the order of the first.
func intersect(list, others []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return !slices.Contains(others, a) })
}

// desiredFor returns the desired routes of a view, as of now.
func (r *routes) desiredFor(v *view.View) ops.Routes {
	wanted := ops.Routes{BGP: v.Config.BGP, VIPs: v.AnnouncedVIPs(), Orphan: v.Config.Orphan}
	if !wanted.BGP.On() {
		return ops.Routes{}
	}
	wanted.Pool, wanted.Backup = v.AnnouncedPool()
	now := time.Now()
	if r.inherited != nil && now.Before(r.inheritedUntil) {
		for _, vip := range view.VIPsOf(v.Config) {
			if r.inherited[vip] && !slices.Contains(wanted.VIPs, vip) && !v.Passive {
				wanted.VIPs = append(wanted.VIPs, vip)
			}
		}
	}
	if r.drained != nil {
		if wanted.Draining = true; !now.Before(r.drained.At.Add(v.Config.BGP.DrainPause)) {
			wanted.VIPs = nil
		}
	}
	return wanted
}

// isDeferred reports whether routers are sent nothing yet, not even that there are no VIPs: by graceful restart (RFC
// 4724), routers may have retained the routes of the data plane that was taken over, and would delete them.
func (r *routes) isDeferred(v *view.View) bool {
	return r.opt.TakesOver && v.Joining != "" && v.Config.VRRP.ID == 0
}

// update requests the routes of a view, and logs changes.
func (r *routes) update(v *view.View) {
	if r.opt.Routes == nil || r.isDeferred(v) {
		return
	}
	r.armUpdate(v) // first: no time may pass unnoticed in between
	r.setDesired(r.desiredFor(v))
	r.logChanges(v)
}

// armUpdate schedules the next update at the time when desiredFor changes by itself: when inherited VIPs are withdrawn,
// and those of a drained balancer. A reload may have changed drain_pause.
func (r *routes) armUpdate(v *view.View) {
	changes := []time.Time{r.inheritedUntil}
	if r.drained != nil {
		changes = append(changes, r.drained.At.Add(v.Config.BGP.DrainPause))
	}
	for _, at := range changes {
		if remaining := time.Until(at); remaining > 0 {
			r.routesTask.ScheduleWithin(remaining)
		}
	}
}

// logChanges logs which routes have changed since they were logged last.
func (r *routes) logChanges(v *view.View) {
	previous := r.logged
	r.logged = r.desired
	withdrawn, added := view.Without(previous.VIPs, r.desired.VIPs), view.Without(r.desired.VIPs, previous.VIPs)
	about := events.About{Kind: events.KindRoutes}.Attr()
	for _, vip := range withdrawn[:min(len(withdrawn), loglines.MaxLines)] {
		why := "it is no VIP any more"
		if slices.Contains(v.Addresses, vip) {
			why = v.WhyUnannounced(vip)
		}
		if r.drained != nil {
			why = "the balancer is drained"
		}
		r.opt.Log.Warn(fmt.Sprintf("%s is withdrawn from routers: %s", vip, why), about)
	}
	if len(added) > 0 {
		r.opt.Log.Info("announced to routers: "+loglines.AddressList(added), about)
	}
}

func (r *routes) setDesired(wanted ops.Routes) {
	if reflect.DeepEqual(wanted, r.desired) {
		return
	}
	previous := r.desired
	r.desired = wanted
	if len(view.Without(wanted.VIPs, previous.VIPs)) > 0 || previous.Draining && !wanted.Draining {
		r.requestEarly()
	}
	r.opt.Routes.SetDesired(wanted)
}

// start takes over the routes that the previous process announced, and its drain. Without BGP it ends the speaker that
// the process may have left.
func (r *routes) start(v *view.View) {
	if err := r.restore(); err != nil {
		r.opt.Log.Error(loglines.OneLine(err))
	}
	if r.drained != nil && (r.announces(v) || r.sharesByVRRP(v)) {
		r.opt.Log.Warn(fmt.Sprintf("the balancer is drained, by %s at %s: `jeoul balancer undrain` ends that",
			r.drained.By, r.drained.At.Format(time.DateTime)))
	}
	if r.opt.Routes == nil {
		return
	}
	if !v.Config.BGP.On() {
		r.opt.Routes.SetDesired(ops.Routes{}) // whatever the speaker announces, which only a takeover asks for
	}
	if len(r.previous) > 0 {
		r.inherited = map[netip.Addr]bool{}
		for _, vip := range r.previous {
			r.inherited[vip] = true
		}
		r.inheritedUntil = time.Now().Add(takeoverHold)
		r.desired.VIPs = intersect(r.previous, view.VIPsOf(v.Config))
		r.logged = r.desired
	}
	r.update(v)
}

// restore reads the saved drain of the balancer.
func (r *routes) restore() error {
	if r.opt.Drained == nil {
		return nil
	}
	data, err := r.opt.Drained.Load()
	if err != nil || len(data) == 0 {
		return err
	}
	saved := &savedDrain{}
	if err := json.Unmarshal(data, saved); err != nil {
		return fmt.Errorf("read whether the balancer is drained: %w", err)
	}
	saved.At = saved.Clock.FromWall(saved.At, r.opt.Clock())
	r.setDrained(saved)
	return nil
}

func (r *routes) setDrained(drained *savedDrain) {
	r.mu.Lock()
	r.drained = drained
	r.mu.Unlock()
}

// save stores the drain of the balancer for the next process.
func (r *routes) save(drained *savedDrain) error {
	if r.opt.Drained == nil {
		return nil
	}
	var data []byte
	if drained != nil {
		now := r.opt.Clock()
		text, err := json.Marshal(savedDrain{drained.By, now.ToWall(drained.At), now})
		if err != nil {
			return err
		}
		data = text
	}
	// A drain that is in force but not written is a fault that the durable files report; any other error refuses it.
	if err := r.opt.Drained.Save(data); err != nil && !errors.Is(err, durable.ErrNotWritten) {
		return fmt.Errorf("save that the balancer is drained: %w", err)
	}
	return nil
}

// drain is Drain within the loop.
func (r *routes) drain(drain bool, by string) error {
	v := r.view
	switch {
	case !r.announces(v) && !r.sharesByVRRP(v):
		return fmt.Errorf(
			"%w: the configuration has neither bgp nor vrrp, so no other balancer can take the VIPs",
			ops.ErrRefused)
	case drain && r.drained != nil:
		return fmt.Errorf("%w: the balancer is drained already, by %s at %s", ops.ErrRefused, r.drained.By,
			r.drained.At.Format(time.DateTime))
	case !drain && r.drained == nil:
		return fmt.Errorf("%w: the balancer is not drained", ops.ErrRefused)
	}
	about := events.About{Kind: events.KindRoutes, By: by}.Attr()
	var drained *savedDrain
	if drain {
		drained = &savedDrain{By: by, At: time.Now()}
	}
	if err := r.save(drained); err != nil {
		return err
	}
	r.setDrained(drained)
	switch {
	case drain && !r.announces(v):
		r.opt.Log.Warn("the balancer is drained: it leaves the VIPs to others", "by", by, about)
	case drain:
		r.opt.Log.Warn(fmt.Sprintf("the balancer is drained: routers prefer all others, and in %s the VIPs are withdrawn",
			v.Config.BGP.DrainPause), "by", by, about)
	default:
		r.opt.Log.Info("the balancer is no longer drained", "by", by, about)
	}
	r.election.setDesired(v)
	if r.announces(v) {
		r.update(v)
		r.opt.Routes.WaitAnnounced(withdrawTimeout)
	}
	return nil
}

// announces reports whether VIPs are announced to routers, and sharesByVRRP whether another balancer of the segment may
// hold them.
func (r *routes) announces(v *view.View) bool { return v.Config.BGP.On() && r.opt.Routes != nil }

func (r *routes) sharesByVRRP(v *view.View) bool {
	return v.Config.VRRP.ID != 0 && r.opt.Election != nil
}

// bgpStatus returns the BGP status of a view.
func (r *routes) bgpStatus(v *view.View) ops.BGP {
	status := ops.BGP{Speaker: v.Config.BGP.Speaker, Table: v.Config.BGP.Table, ASN: v.Config.BGP.ASN,
		RouterID: v.Config.BGP.RouterID, VIPs: []ops.AnnouncedVIP{}, Peers: []ops.BGPPeer{}}
	r.mu.Lock()
	drained := r.drained
	r.mu.Unlock()
	withdrawn := false
	if drained != nil {
		status.Drained = &ops.BalancerDrained{By: drained.By, At: drained.At,
			Withdrawn: drained.At.Add(v.Config.BGP.DrainPause)}
		withdrawn = !time.Now().Before(status.Drained.Withdrawn)
	}
	for _, vip := range view.VIPsOf(v.Config) {
		if !v.Config.BGP.On() {
			break
		}
		why := v.WhyUnannounced(vip)
		if why == "" && withdrawn {
			why = "the balancer is drained"
		}
		status.VIPs = append(status.VIPs, ops.AnnouncedVIP{VIP: vip, Announced: why == "", Reason: why})
	}
	own, others := v.AnnouncedPool()
	for _, address := range own {
		status.Pool = append(status.Pool, ops.AnnouncedAddress{Address: address})
	}
	for _, address := range others {
		status.Pool = append(status.Pool, ops.AnnouncedAddress{Address: address, Backup: true})
	}
	if r.announces(v) {
		r.opt.Routes.FillStatus(&status)
	}
	return status
}

// fillStatus writes the announced routes into a status.
func (r *routes) fillStatus(v *view.View, status *ops.Status) {
	if r.opt.Routes == nil || !v.Config.BGP.On() {
		return
	}
	bgp := r.bgpStatus(v)
	status.BGP = &bgp
	if bgp.Problem != "" {
		status.Problems = append(status.Problems, bgp.Problem)
	}
	for _, p := range bgp.Peers {
		if !p.Established() {
			status.Problems = append(status.Problems, fmt.Sprintf("BGP peer %s (AS %d) has no session: %s", p.Address,
				p.ASN, cmp.Or(p.Reason, "it is "+p.State)))
		}
	}
}
