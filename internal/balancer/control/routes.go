// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// Routes tells routers of the VIPs.
type Routes interface {
	// Found are the VIPs that routers know of by a process before this one.
	Found() []netip.Addr
	// Want says what is announced from now on. It does not wait for that, but Await does, for so long at
	// most.
	Want(ops.Routes)
	Await(time.Duration)
	// Show fills in how the routers are.
	Show(*ops.BGP)
}

const (
	// trust is how long, after another process's work was taken over, nothing is withdrawn: until then not
	// all of it is known again that the process before knew of paths and health.
	trust = 5 * time.Second
	// awaitRoutes is how long a change waits for routers to be told that a VIP goes.
	awaitRoutes = time.Second
)

// routes has routers know of the VIPs that this balancer serves. It comes first of the actuators: what is
// withdrawn is withdrawn before anything else is taken away, and what is announced comes last.
type routes struct {
	c *Controller
	// wanted is what was asked for last.
	wanted ops.Routes
	// told is what was logged last.
	told ops.Routes
	// left are the VIPs that a process before was found to announce.
	left []netip.Addr
	// found are VIPs that are not withdrawn before trusted.
	found   map[netip.Addr]bool
	trusted time.Time
	// drained is nil where the balancer is not. Status reads it, under the controller's lock.
	drained *savedDrain
}

// savedDrain is who has drained the balancer; At is of the wall clock of Clock.
type savedDrain struct {
	By    string        `json:"by"`
	At    time.Time     `json:"at"`
	Clock clock.Reading `json:"clock,omitzero"`
}

// findAnnounced finds the services that each VIP is announced for.
func (l *layout) findAnnounced() {
	if !l.cfg.BGP.On() {
		return
	}
	l.announced = map[netip.Addr][]int{}
	for i, s := range l.cfg.Services {
		if !s.Announcement.Never {
			l.announced[s.VIP] = append(l.announced[s.VIP], i)
		}
	}
}

// serving counts the backends of service i that can be reached and are healthy. Failing ones that are used
// for want of others do not count.
func (v *view) serving(i int) (n int) {
	if i >= len(v.state.Services) {
		return 0
	}
	s := v.state.Services[i]
	for j, b := range s.Backends {
		if b.Unhealthy == "" && s.Reachable(j) {
			n++
		}
	}
	if p := v.selected[i]; p.serving == panicked {
		return min(n, p.healthy)
	}
	return n
}

// unannounced says why routers are not told of a VIP; empty if they are.
func (v *view) unannounced(vip netip.Addr) string {
	switch services := v.announced[vip]; {
	case v.passive:
		return "another balancer holds the VIPs"
	case v.joining != "":
		return v.joining
	case len(services) == 0:
		return "no service of it is to be announced"
	case slices.ContainsFunc(services, func(i int) bool { return v.serving(i) >= v.minimum(i) }):
		return ""
	case len(services) == 1:
		i := services[0]
		return fmt.Sprintf("%d backends of %s serve, of at least %d", v.serving(i), v.cfg.Services[i].Name, v.minimum(i))
	}
	return "no service of it has enough backends that serve"
}

func (v *view) minimum(i int) int { return int(cmp.Or(v.cfg.Services[i].Announcement.Minimum, 1)) }

// announces are the VIPs that routers are to be told of, in the configuration's order.
func (v *view) announces() (vips []netip.Addr) {
	if !v.cfg.BGP.On() {
		return nil
	}
	for _, vip := range vipsOf(v.cfg) {
		if v.unannounced(vip) == "" {
			vips = append(vips, vip)
		}
	}
	return vips
}

// pool are the addresses of full NAT that routers are to be told of: replies find this balancer's own, and those of others when
// these are gone. There are none where the pool is not divided, for then no other balancer knows of them.
func (v *view) pool() (own, others []netip.Addr) {
	if !v.cfg.BGP.On() || v.passive || v.joining != "" || !v.cfg.PoolIsDivided() {
		return nil, nil
	}
	pool := v.cfg.Pool()
	return pool.Addresses, pool.Others
}

func (r *routes) change(before, next *view) (bring, retire []step) {
	if r.c.opt.Routes == nil || !before.cfg.BGP.On() && !next.cfg.BGP.On() || r.waits(next) {
		return nil, nil
	}
	was, stays := r.wanted, r.of(next)
	stays.VIPs, stays.Pool, stays.Backup = both(was.VIPs, stays.VIPs), both(was.Pool, stays.Pool), both(was.Backup, stays.Backup)
	if len(stays.VIPs) < len(was.VIPs) || len(stays.Pool) < len(was.Pool) || len(stays.Backup) < len(was.Backup) {
		stays.BGP, stays.Draining, stays.Orphan = was.BGP, was.Draining, was.Orphan
		bring = []step{{
			do: func() error {
				r.want(stays)
				r.c.opt.Routes.Await(awaitRoutes)
				return nil
			},
			undo: func() error {
				r.want(was)
				return nil
			},
		}}
	}
	return bring, []step{{do: func() error {
		r.follow(next)
		if before.layout != next.layout {
			r.c.opt.Routes.Want(r.wanted) // again: a file that has a password may be another
		}
		return nil
	}}}
}

// both returns the addresses of the first that are in the second.
func both(some, others []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(some), func(a netip.Addr) bool { return !slices.Contains(others, a) })
}

// of is what routers are to know by a view, as of now.
func (r *routes) of(v *view) ops.Routes {
	wanted := ops.Routes{BGP: v.cfg.BGP, VIPs: v.announces(), Orphan: v.cfg.Orphan}
	if !wanted.BGP.On() {
		return ops.Routes{}
	}
	wanted.Pool, wanted.Backup = v.pool()
	now := time.Now()
	if r.found != nil && now.Before(r.trusted) {
		for _, vip := range vipsOf(v.cfg) {
			if r.found[vip] && !slices.Contains(wanted.VIPs, vip) && !v.passive {
				wanted.VIPs = append(wanted.VIPs, vip)
			}
		}
	}
	if r.drained != nil {
		if wanted.Draining = true; !now.Before(r.drained.At.Add(v.cfg.BGP.DrainPause)) {
			wanted.VIPs = nil
		}
	}
	return wanted
}

// waits says whether nothing is told yet, not even that there is nothing: routers may have kept, over the end of a speaker, the
// routes of the data plane that was taken over (RFC 4724), and would drop them.
func (r *routes) waits(v *view) bool {
	return r.c.opt.TakesOver && v.joining != "" && v.cfg.VRRP.ID == 0
}

// follow asks for what follows from a view, and logs what is new.
func (r *routes) follow(v *view) {
	if r.c.opt.Routes == nil || r.waits(v) {
		return
	}
	r.want(r.of(v))
	r.tell(v)
}

// tell logs what is new since it was logged last.
func (r *routes) tell(v *view) {
	was := r.told
	r.told = r.wanted
	gone, added := without(was.VIPs, r.wanted.VIPs), without(r.wanted.VIPs, was.VIPs)
	about := events.About{Kind: events.KindRoutes}.Attr()
	for _, vip := range gone[:min(len(gone), mostTold)] {
		why := "it is no VIP any more"
		if slices.Contains(v.addresses, vip) {
			why = v.unannounced(vip)
		}
		if r.drained != nil {
			why = "the balancer is drained"
		}
		r.c.opt.Log.Warn(fmt.Sprintf("routers are told no more of %s: %s", vip, why), about)
	}
	if len(added) > 0 {
		r.c.opt.Log.Info("routers are told of "+some(added), about)
	}
}

func (r *routes) want(wanted ops.Routes) {
	if reflect.DeepEqual(wanted, r.wanted) {
		return
	}
	was := r.wanted
	r.wanted = wanted
	if len(without(wanted.VIPs, was.VIPs)) > 0 || was.Draining && !wanted.Draining {
		r.c.hasten()
	}
	r.c.opt.Routes.Want(wanted)
}

// begin goes on with what a process before has told routers, and with its drain.
func (r *routes) begin(v *view) {
	if err := r.recall(); err != nil {
		r.c.opt.Log.Error(oneLine(err))
	}
	if r.drained != nil && (r.tells(v) || r.shares(v)) {
		r.c.opt.Log.Warn(fmt.Sprintf("the balancer is drained, by %s at %s: `jeoul balancer undrain` ends that", r.drained.By, r.drained.At.Format(time.DateTime)))
	}
	if r.c.opt.Routes == nil {
		return
	}
	if len(r.left) > 0 {
		r.found = map[netip.Addr]bool{}
		for _, vip := range r.left {
			r.found[vip] = true
		}
		r.trusted = time.Now().Add(trust)
		r.wanted.VIPs = both(r.left, vipsOf(v.cfg))
		r.told = r.wanted
		r.c.tasks.routes.In(trust)
	}
	r.follow(v)
	if r.drained != nil && r.tells(v) {
		r.arm(v)
	}
}

// arm has the VIPs withdrawn when they have been the last choice for long enough.
func (r *routes) arm(v *view) {
	if left := time.Until(r.drained.At.Add(v.cfg.BGP.DrainPause)); left > 0 {
		r.c.tasks.routes.In(left)
	}
}

// recall reads who has drained the balancer.
func (r *routes) recall() error {
	if r.c.opt.Drained == nil {
		return nil
	}
	data, err := r.c.opt.Drained.Load()
	if err != nil || len(data) == 0 {
		return err
	}
	saved := &savedDrain{}
	if err := json.Unmarshal(data, saved); err != nil {
		return fmt.Errorf("read whether the balancer is drained: %w", err)
	}
	saved.At = saved.Clock.Told(saved.At, r.c.opt.Clock())
	r.set(saved)
	return nil
}

func (r *routes) set(drained *savedDrain) {
	r.c.mu.Lock()
	r.drained = drained
	r.c.mu.Unlock()
}

// save keeps who has drained the balancer, over restarts.
func (r *routes) save(drained *savedDrain) error {
	if r.c.opt.Drained == nil {
		return nil
	}
	var data []byte
	if drained != nil {
		now := r.c.opt.Clock()
		text, err := json.Marshal(savedDrain{drained.By, now.Written(drained.At), now})
		if err != nil {
			return err
		}
		data = text
	}
	// In force, it is a fault that files tell of; what else goes wrong refuses it.
	if err := r.c.opt.Drained.Save(data); err != nil && !errors.Is(err, durable.ErrNotWritten) {
		return fmt.Errorf("save that the balancer is drained: %w", err)
	}
	return nil
}

// Drain takes this balancer out of every anycast, or brings it back; by says who asks. Errors:
// ops.ErrRefused, ops.ErrStopping, the context's.
func (c *Controller) Drain(ctx context.Context, drain bool, by string) (ops.Sharing, error) {
	come, err := loop.Ask(ctx, c.loop, func() (ops.Sharing, error) {
		err := c.routes.drain(drain, by)
		return ops.Sharing{BGP: c.bgpStatus(c.view), VRRP: c.vrrpStatus(c.view)}, err
	})
	if errors.Is(err, ErrStopped) {
		err = ops.ErrStopping
	}
	return come, err
}

// drain is in the loop.
func (r *routes) drain(drain bool, by string) error {
	v := r.c.view
	switch {
	case !r.tells(v) && !r.shares(v):
		return fmt.Errorf("%w: the configuration has neither bgp nor vrrp, so there is no other balancer to leave the VIPs to", ops.ErrRefused)
	case drain && r.drained != nil:
		return fmt.Errorf("%w: the balancer is drained already, by %s at %s", ops.ErrRefused, r.drained.By, r.drained.At.Format(time.DateTime))
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
	case drain && !r.tells(v):
		r.c.opt.Log.Warn("the balancer is drained: it leaves the VIPs to others", "by", by, about)
	case drain:
		r.c.opt.Log.Warn(fmt.Sprintf("the balancer is drained: routers have it as the last choice, and in %s not at all", v.cfg.BGP.DrainPause), "by", by, about)
		r.arm(v)
	default:
		r.c.opt.Log.Info("the balancer is drained no more", "by", by, about)
	}
	r.c.election.follow(v)
	if r.tells(v) {
		r.follow(v)
		r.c.opt.Routes.Await(awaitRoutes)
	}
	return nil
}

// tells says whether routers are told of VIPs, and shares whether others of the segment may hold them.
func (r *routes) tells(v *view) bool  { return v.cfg.BGP.On() && r.c.opt.Routes != nil }
func (r *routes) shares(v *view) bool { return v.cfg.VRRP.ID != 0 && r.c.opt.Election != nil }

// Drained says whether the balancer is taken out of every anycast. It may be called from any goroutine.
func (c *Controller) Drained() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.routes.drained != nil
}

// bgpStatus is what routers are told by a view, nil where there is none.
func (c *Controller) bgpStatus(v *view) ops.BGP {
	status := ops.BGP{Speaker: v.cfg.BGP.Speaker, Table: v.cfg.BGP.Table, ASN: v.cfg.BGP.ASN, RouterID: v.cfg.BGP.RouterID, VIPs: []ops.AnnouncedVIP{}, Peers: []ops.BGPPeer{}}
	c.mu.Lock()
	drained := c.routes.drained
	c.mu.Unlock()
	out := false
	if drained != nil {
		status.Drained = &ops.BalancerDrained{By: drained.By, At: drained.At, Withdrawn: drained.At.Add(v.cfg.BGP.DrainPause)}
		out = !time.Now().Before(status.Drained.Withdrawn)
	}
	for _, vip := range vipsOf(v.cfg) {
		if !v.cfg.BGP.On() {
			break
		}
		why := v.unannounced(vip)
		if why == "" && out {
			why = "the balancer is drained"
		}
		status.VIPs = append(status.VIPs, ops.AnnouncedVIP{VIP: vip, Announced: why == "", Reason: why})
	}
	own, others := v.pool()
	for _, address := range own {
		status.Pool = append(status.Pool, ops.AnnouncedAddress{Address: address})
	}
	for _, address := range others {
		status.Pool = append(status.Pool, ops.AnnouncedAddress{Address: address, Backup: true})
	}
	if c.routes.tells(v) {
		c.opt.Routes.Show(&status)
	}
	return status
}

// showRoutes adds what routers are told to a status.
func (c *Controller) showRoutes(v *view, status *ops.Status) {
	if c.opt.Routes == nil || !v.cfg.BGP.On() {
		return
	}
	bgp := c.bgpStatus(v)
	status.BGP = &bgp
	if bgp.Problem != "" {
		status.Problems = append(status.Problems, bgp.Problem)
	}
	for _, p := range bgp.Peers {
		if !p.Established() {
			status.Problems = append(status.Problems, fmt.Sprintf("BGP peer %s (AS %d) has no session: %s", p.Address, p.ASN, cmp.Or(p.Reason, "it is "+p.State)))
		}
	}
}
