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
	// trust is how long, after another process's work was taken over, nothing is withdrawn: until then not all of it is
	// known again that the previous process knew of paths and health.
	trust = 5 * time.Second
	// awaitRoutes is how long a change waits until a VIP that goes is withdrawn from routers.
	awaitRoutes = time.Second
)

// routes has routers know of the VIPs that this balancer serves. It comes first of the actuators: routes are withdrawn
// before anything else is taken away, and announced after all else is in force.
type routes struct {
	*core
	election   *election
	routesTask *loop.Task
	// wanted are the routes asked for last.
	wanted ops.Routes
	// told are the routes logged last.
	told ops.Routes
	// left are the VIPs that the previous process was found to announce.
	left []netip.Addr
	// found are VIPs that are not withdrawn before trusted.
	found   map[netip.Addr]bool
	trusted time.Time
	// drained is nil where the balancer is not. Status reads it, under the controller's lock.
	drained *savedDrain
}

// savedDrain is the saved drain of the balancer; At is by the wall clock of Clock.
type savedDrain struct {
	By    string        `json:"by"`
	At    time.Time     `json:"at"`
	Clock clock.Reading `json:"clock,omitzero"`
}

func (r *routes) Change(before, next *view.View) (bring, retire []steps.Step) {
	if r.opt.Routes == nil || !before.Config.BGP.On() && !next.Config.BGP.On() || r.waits(next) {
		return nil, nil
	}
	was, stays := r.wanted, r.of(next)
	stays.VIPs, stays.Pool, stays.Backup = both(was.VIPs, stays.VIPs), both(was.Pool, stays.Pool),
		both(was.Backup, stays.Backup)
	if len(stays.VIPs) < len(was.VIPs) || len(stays.Pool) < len(was.Pool) || len(stays.Backup) < len(was.Backup) {
		stays.BGP, stays.Draining, stays.Orphan = was.BGP, was.Draining, was.Orphan
		bring = []steps.Step{{
			Do: func() error {
				r.want(stays)
				r.opt.Routes.Await(awaitRoutes)
				return nil
			},
			Undo: func() error {
				r.want(was)
				return nil
			},
		}}
	}
	return bring, []steps.Step{{Do: func() error {
		r.follow(next)
		if before.Layout != next.Layout {
			r.opt.Routes.Want(r.wanted) // again: a file that has a password may be another
		}
		return nil
	}}}
}

// both returns the addresses of the first that are in the second.
func both(some, others []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(some), func(a netip.Addr) bool { return !slices.Contains(others, a) })
}

// of returns the routes that routers are to have by a view, as of now.
func (r *routes) of(v *view.View) ops.Routes {
	wanted := ops.Routes{BGP: v.Config.BGP, VIPs: v.Announces(), Orphan: v.Config.Orphan}
	if !wanted.BGP.On() {
		return ops.Routes{}
	}
	wanted.Pool, wanted.Backup = v.AnnouncedPool()
	now := time.Now()
	if r.found != nil && now.Before(r.trusted) {
		for _, vip := range view.VIPsOf(v.Config) {
			if r.found[vip] && !slices.Contains(wanted.VIPs, vip) && !v.Passive {
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

// waits says whether routers are sent nothing yet, not even that there is no VIP: routers may have kept, over the end
// of a speaker, the routes of the data plane that was taken over (RFC 4724), and would drop them.
func (r *routes) waits(v *view.View) bool {
	return r.opt.TakesOver && v.Joining != "" && v.Config.VRRP.ID == 0
}

// follow asks for the routes of a view, and logs changes.
func (r *routes) follow(v *view.View) {
	if r.opt.Routes == nil || r.waits(v) {
		return
	}
	r.want(r.of(v))
	r.logChanges(v)
}

// logChanges logs changes since the last line about routes.
func (r *routes) logChanges(v *view.View) {
	was := r.told
	r.told = r.wanted
	gone, added := view.Without(was.VIPs, r.wanted.VIPs), view.Without(r.wanted.VIPs, was.VIPs)
	about := events.About{Kind: events.KindRoutes}.Attr()
	for _, vip := range gone[:min(len(gone), loglines.Most)] {
		why := "it is no VIP any more"
		if slices.Contains(v.Addresses, vip) {
			why = v.Unannounced(vip)
		}
		if r.drained != nil {
			why = "the balancer is drained"
		}
		r.opt.Log.Warn(fmt.Sprintf("routers are told no more of %s: %s", vip, why), about)
	}
	if len(added) > 0 {
		r.opt.Log.Info("routers are told of "+loglines.Some(added), about)
	}
}

func (r *routes) want(wanted ops.Routes) {
	if reflect.DeepEqual(wanted, r.wanted) {
		return
	}
	was := r.wanted
	r.wanted = wanted
	if len(view.Without(wanted.VIPs, was.VIPs)) > 0 || was.Draining && !wanted.Draining {
		r.requestEarly()
	}
	r.opt.Routes.Want(wanted)
}

// begin goes on with the routes that the previous process has announced, and with its drain.
func (r *routes) begin(v *view.View) {
	if err := r.restore(); err != nil {
		r.opt.Log.Error(loglines.OneLine(err))
	}
	if r.drained != nil && (r.announces(v) || r.shares(v)) {
		r.opt.Log.Warn(fmt.Sprintf("the balancer is drained, by %s at %s: `jeoul balancer undrain` ends that",
			r.drained.By, r.drained.At.Format(time.DateTime)))
	}
	if r.opt.Routes == nil {
		return
	}
	if len(r.left) > 0 {
		r.found = map[netip.Addr]bool{}
		for _, vip := range r.left {
			r.found[vip] = true
		}
		r.trusted = time.Now().Add(trust)
		r.wanted.VIPs = both(r.left, view.VIPsOf(v.Config))
		r.told = r.wanted
		r.routesTask.In(trust)
	}
	r.follow(v)
	if r.drained != nil && r.announces(v) {
		r.arm(v)
	}
}

// arm has the VIPs withdrawn when they have been the last choice for long enough.
func (r *routes) arm(v *view.View) {
	if left := time.Until(r.drained.At.Add(v.Config.BGP.DrainPause)); left > 0 {
		r.routesTask.In(left)
	}
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
	r.set(saved)
	return nil
}

func (r *routes) set(drained *savedDrain) {
	r.mu.Lock()
	r.drained = drained
	r.mu.Unlock()
}

// save keeps the drain of the balancer over restarts.
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

// drain is Drain's part in the loop.
func (r *routes) drain(drain bool, by string) error {
	v := r.view
	switch {
	case !r.announces(v) && !r.shares(v):
		return fmt.Errorf(
			"%w: the configuration has neither bgp nor vrrp, so there is no other balancer to leave the VIPs to",
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
	r.set(drained)
	switch {
	case drain && !r.announces(v):
		r.opt.Log.Warn("the balancer is drained: it leaves the VIPs to others", "by", by, about)
	case drain:
		r.opt.Log.Warn(fmt.Sprintf("the balancer is drained: routers have it as the last choice, and in %s not at all",
			v.Config.BGP.DrainPause), "by", by, about)
		r.arm(v)
	default:
		r.opt.Log.Info("the balancer is drained no more", "by", by, about)
	}
	r.election.follow(v)
	if r.announces(v) {
		r.follow(v)
		r.opt.Routes.Await(awaitRoutes)
	}
	return nil
}

// announces says whether VIPs are announced to routers, and shares whether others of the segment may hold them.
func (r *routes) announces(v *view.View) bool { return v.Config.BGP.On() && r.opt.Routes != nil }

func (r *routes) shares(v *view.View) bool { return v.Config.VRRP.ID != 0 && r.opt.Election != nil }

// bgpStatus returns the BGP status of a view; nil where nothing is announced to routers.
func (r *routes) bgpStatus(v *view.View) ops.BGP {
	status := ops.BGP{Speaker: v.Config.BGP.Speaker, Table: v.Config.BGP.Table, ASN: v.Config.BGP.ASN,
		RouterID: v.Config.BGP.RouterID, VIPs: []ops.AnnouncedVIP{}, Peers: []ops.BGPPeer{}}
	r.mu.Lock()
	drained := r.drained
	r.mu.Unlock()
	out := false
	if drained != nil {
		status.Drained = &ops.BalancerDrained{By: drained.By, At: drained.At,
			Withdrawn: drained.At.Add(v.Config.BGP.DrainPause)}
		out = !time.Now().Before(status.Drained.Withdrawn)
	}
	for _, vip := range view.VIPsOf(v.Config) {
		if !v.Config.BGP.On() {
			break
		}
		why := v.Unannounced(vip)
		if why == "" && out {
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
		r.opt.Routes.Show(&status)
	}
	return status
}

// showRoutes adds the announced routes to a status.
func (r *routes) showRoutes(v *view.View, status *ops.Status) {
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
