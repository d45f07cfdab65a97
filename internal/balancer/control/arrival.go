// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// arrival is what a balancer that starts beside others waits for before it takes VIPs: the flows that they remember, and
// what its health checks say, so that its first table is theirs.
type arrival struct{ flows, verdicts bool }

const (
	// verdictsBound is for how long the first verdicts are waited for: a backend that fails by the default check
	// has its own after at most three intervals and timeouts, 9 s.
	verdictsBound = 10 * time.Second

	notJoined = "the flows that other members remember are not known yet"
	notJudged = "the health checks have no verdict on all backends yet"
)

// why says what is waited for.
func (a arrival) why() string {
	switch {
	case a.flows:
		return notJoined
	case a.verdicts:
		return notJudged
	}
	return ""
}

// joinLater has this balancer leave the VIPs to others until it knows what they remember. What a process before has left, and to which
// packets come all the time, goes on: it knows its flows, and its verdicts.
func (c *Controller) joinLater() {
	if c.arrival.flows = c.opt.Joined != nil && !c.opt.TakesOver; c.opt.Joined != nil {
		c.loop.On(c.opt.Joined, func() {
			c.arrival.flows = false
			c.arrived()
		})
	}
}

// wentElsewhere says whether packets went to other balancers while there was no process: no speaker announces the VIPs any more, or another
// balancer has taken them.
func (c *Controller) wentElsewhere(first *view) bool {
	if first.cfg.VRRP.ID != 0 {
		return c.opt.Election != nil && first.passive
	}
	return c.opt.Routes != nil && first.cfg.BGP.On() && len(c.routes.left) == 0
}

// arrive returns why the first view's VIPs are to be left to others yet. Where packets went to others since the process before ended, nothing is known here
// of the flows that began there, nor of backends that have died, as when the balancer had never been.
func (c *Controller) arrive(first *view) string {
	if c.opt.TakesOver && c.opt.Routes != nil {
		c.routes.left = c.opt.Routes.Found()
	}
	elsewhere := c.opt.TakesOver && c.wentElsewhere(first)
	if elsewhere {
		c.arrival.flows = c.opt.Joined != nil
	}
	c.arrival.verdicts = (elsewhere || !c.opt.TakesOver && first.besideOthers()) && first.unjudged()
	c.joining = c.arrival.why()
	return c.joining
}

// awaitOthers bounds how long first verdicts are waited for. The checks go by the data plane, so its loading does not count.
func (c *Controller) awaitOthers() {
	if c.arrival.verdicts {
		c.tasks.judged.In(verdictsBound)
	}
	if c.joining != "" && c.view.byAddress() {
		c.opt.Log.Info(fmt.Sprintf("the VIPs come onto %s later: %s", c.view.links[0].Name, c.joining))
	}
}

// hasten has others tell of what begins there while packets of that come to be sent here.
func (c *Controller) hasten() {
	if c.opt.Hasten != nil {
		c.opt.Hasten()
	}
}

// arrived takes the VIPs if there is nothing more to wait for.
func (c *Controller) arrived() {
	if c.joining = c.arrival.why(); c.joining == "" {
		c.hasten()
	}
	c.promptly()
}

// judged goes on once the data plane has the first verdict on each backend. So no transition begins by it.
func (c *Controller) judged() {
	if c.arrival.verdicts && !c.view.unjudged() {
		c.judgedInTime()
	}
}

// judgedInTime waits for no verdict any more.
func (c *Controller) judgedInTime() {
	c.arrival.verdicts = false
	c.tasks.judged.Off()
	c.arrived()
}

// byAddress says whether nothing but the VIPs' addresses on the interface tells others that this balancer has them: there are members,
// and neither BGP nor VRRP.
func (l *layout) byAddress() bool {
	return l.cfg.Members.Listen.IsValid() && !l.cfg.BGP.On() && l.cfg.VRRP.ID == 0
}

// leavesAll says whether no packet comes for any VIP while this balancer leaves them to others. By VIPs' addresses, some may: what
// else steers them there does not ask. The tables of others count for more then, for they have the flows that are older.
func (l *layout) leavesAll() bool {
	if !l.besideOthers() {
		return false
	}
	for _, s := range l.cfg.Services {
		if l.cfg.BGP.On() && l.cfg.VRRP.ID == 0 && s.Announcement.Never {
			return false
		}
	}
	return true
}

// unjudged says whether there is a backend that would take new flows and on which its checks have no verdict, or that of a process before alone,
// long after that has ended.
func (v *view) unjudged() bool {
	for i := range v.cfg.Services {
		if v.verdicts[i] == nil || i >= len(v.state.Services) {
			continue
		}
		s := &v.state.Services[i]
		for j, b := range s.Backends {
			now := v.verdicts[i][j]
			if (now.former || now.state == "" || now.state == lb.HealthUnknown) && b.TakesFlows() && s.Reachable(j) {
				return true
			}
		}
	}
	return false
}
