// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Serving counts the backends of service i that can be reached and are healthy. Failing ones that are used
// for want of others do not count.
func (v *View) Serving(i int) (n int) {
	if i >= len(v.State.Services) {
		return 0
	}
	s := v.State.Services[i]
	for j := range s.Backends {
		if s.Observed.Of(j).Unhealthy == "" && s.Reachable(j) {
			n++
		}
	}
	if p := v.Selected[i]; p.Serving == Panicked {
		return min(n, p.Healthy)
	}
	return n
}

// Unannounced returns the reason for which a VIP is not announced to routers; empty if it is.
func (v *View) Unannounced(vip netip.Addr) string {
	switch services := v.announced[vip]; {
	case v.Passive:
		return "another balancer holds the VIPs"
	case v.Joining != "":
		return v.Joining
	case len(services) == 0:
		return "no service of it is to be announced"
	case slices.ContainsFunc(services, func(i int) bool { return v.Serving(i) >= v.minimum(i) }):
		return ""
	case len(services) == 1:
		i := services[0]
		return fmt.Sprintf("%d backends of %s serve, of at least %d", v.Serving(i), v.Config.Services[i].Name,
			v.minimum(i))
	}
	return "no service of it has enough backends that serve"
}

func (v *View) minimum(i int) int { return int(cmp.Or(v.Config.Services[i].Announcement.Minimum, 1)) }

// Announces are the VIPs to announce to routers, in the configuration's order.
func (v *View) Announces() (vips []netip.Addr) {
	if !v.Config.BGP.On() {
		return nil
	}
	for _, vip := range VIPsOf(v.Config) {
		if v.Unannounced(vip) == "" {
			vips = append(vips, vip)
		}
	}
	return vips
}

// AnnouncedPool are the addresses of full NAT to announce to routers: replies find this balancer's own, and those of
// others when these are gone. There are none where the pool is not divided, for then no other balancer knows of them.
func (v *View) AnnouncedPool() (own, others []netip.Addr) {
	if !v.Config.BGP.On() || v.Passive || v.Joining != "" || !v.Config.PoolIsDivided() {
		return nil, nil
	}
	pool := v.Config.Pool()
	return pool.Addresses, pool.Others
}

// ByAddress says whether nothing but the VIPs' addresses on the interface brings packets for them to this balancer:
// there are members, and neither BGP nor VRRP.
func (l *Layout) ByAddress() bool {
	return l.Config.Members.Listen.IsValid() && !l.Config.BGP.On() && l.Config.VRRP.ID == 0
}

// LeavesAll says whether no packet comes for any VIP while this balancer leaves them to others. A VIP that BGP never
// announces may still get some: other ways to steer packets do not ask this balancer. The tables of others count for
// more then, for they have the flows that are older.
func (l *Layout) LeavesAll() bool {
	if !l.BesideOthers() {
		return false
	}
	for _, s := range l.Config.Services {
		if l.Config.BGP.On() && l.Config.VRRP.ID == 0 && s.Announcement.Never {
			return false
		}
	}
	return true
}

// Unjudged names a backend that would take new flows and on which its checks have no verdict, or that of the previous
// process alone, long after that has ended. It is empty if there is none.
func (v *View) Unjudged() string {
	for i := range v.Config.Services {
		if v.Verdicts[i] == nil || i >= len(v.State.Services) {
			continue
		}
		s := &v.State.Services[i]
		for j, b := range s.Backends {
			now := v.Verdicts[i][j]
			if (now.unconfirmed || now.State == "" || now.State == lb.HealthUnknown) && s.Admits(j) && s.Reachable(j) {
				return fmt.Sprintf("backend %s of %s", b.Name, s.Name)
			}
		}
	}
	return ""
}

// BesideOthers says whether other balancers may have the VIPs, too.
func (l *Layout) BesideOthers() bool {
	return l.Config.BGP.On() || l.Config.VRRP.ID != 0 || l.Config.Members.Listen.IsValid()
}

// A VIP whose services all have on_empty: withdraw is on the interface only while a backend of one
// of them serves. Which VIPs are withdrawn follows from the desired state alone, so a start, a
// reload and a verdict come to the same.

// Withdrawn says whether a VIP is not to be held, for no backend serves.
func (v *View) Withdrawn(vip netip.Addr) bool {
	services, yields := v.Yielding[vip]
	return yields && !slices.ContainsFunc(services, func(i int) bool {
		return i < len(v.State.Services) && v.State.Services[i].Serves()
	})
}

// AddressesHeld are the addresses that are to be on the first interface: none where another balancer has them, or where
// they would bring flows whose backends only others know yet, and no VIP that is withdrawn.
func (v *View) AddressesHeld() []netip.Addr {
	if v.Passive || v.Joining != "" && v.ByAddress() {
		return nil
	}
	if len(v.Yielding) == 0 {
		return v.Addresses
	}
	return slices.DeleteFunc(slices.Clone(v.Addresses), v.Withdrawn)
}
