// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

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
	for j := range s.Backends {
		if s.Observed.Of(j).Unhealthy == "" && s.Reachable(j) {
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
		return fmt.Sprintf("%d backends of %s serve, of at least %d", v.serving(i), v.cfg.Services[i].Name,
			v.minimum(i))
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

// pool are the addresses of full NAT that routers are to be told of: replies find this balancer's own, and those of
// others when these are gone. There are none where the pool is not divided, for then no other balancer knows of them.
func (v *view) pool() (own, others []netip.Addr) {
	if !v.cfg.BGP.On() || v.passive || v.joining != "" || !v.cfg.PoolIsDivided() {
		return nil, nil
	}
	pool := v.cfg.Pool()
	return pool.Addresses, pool.Others
}

// byAddress says whether nothing but the VIPs' addresses on the interface tells others that this balancer has them:
// there are members, and neither BGP nor VRRP.
func (l *layout) byAddress() bool {
	return l.cfg.Members.Listen.IsValid() && !l.cfg.BGP.On() && l.cfg.VRRP.ID == 0
}

// leavesAll says whether no packet comes for any VIP while this balancer leaves them to others. By VIPs' addresses,
// some may: what else steers them there does not ask. The tables of others count for more then, for they have the flows
// that are older.
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

// unjudged names a backend that would take new flows and on which its checks have no verdict, or that of a process
// before alone, long after that has ended. It is empty if there is none.
func (v *view) unjudged() string {
	for i := range v.cfg.Services {
		if v.verdicts[i] == nil || i >= len(v.state.Services) {
			continue
		}
		s := &v.state.Services[i]
		for j, b := range s.Backends {
			now := v.verdicts[i][j]
			if (now.former || now.state == "" || now.state == lb.HealthUnknown) && s.Admits(j) && s.Reachable(j) {
				return fmt.Sprintf("backend %s of %s", b.Name, s.Name)
			}
		}
	}
	return ""
}

// besideOthers says whether other balancers may have the VIPs, too.
func (l *layout) besideOthers() bool {
	return l.cfg.BGP.On() || l.cfg.VRRP.ID != 0 || l.cfg.Members.Listen.IsValid()
}

// A VIP whose services all have on_empty: withdraw is on the interface only while a backend of one
// of them serves. Which VIPs are withdrawn follows from the desired state alone, so a start, a
// reload and a verdict come to the same.

// findYielding finds the VIPs that can be withdrawn.
func (l *layout) findYielding() {
	stay := map[netip.Addr]bool{}
	for _, s := range l.cfg.Services {
		if s.OnEmpty != lb.WithdrawVIP {
			stay[s.VIP] = true
		}
	}
	for i, s := range l.cfg.Services {
		if stay[s.VIP] {
			continue
		}
		if l.yielding == nil {
			l.yielding = map[netip.Addr][]int{}
		}
		l.yielding[s.VIP] = append(l.yielding[s.VIP], i)
	}
}

// withdrawn says whether a VIP is not to be held, for no backend serves.
func (v *view) withdrawn(vip netip.Addr) bool {
	services, yields := v.yielding[vip]
	return yields && !slices.ContainsFunc(services, func(i int) bool {
		return i < len(v.state.Services) && v.state.Services[i].Serves()
	})
}

// logWithdrawn logs which VIPs are withdrawn, and which are held again.
func logWithdrawn(log *slog.Logger, before, next *view) {
	var gone, back []netip.Addr
	for _, vip := range next.addresses {
		switch was, is := before.withdrawn(vip), next.withdrawn(vip); {
		case is && !was:
			gone = append(gone, vip)
		case was && !is:
			back = append(back, vip)
		}
	}
	if len(gone) > 0 {
		log.Warn("no backend serves, so the VIP is withdrawn: " + some(gone))
	}
	if len(back) > 0 {
		log.Info("a backend serves, so the VIP is held again: " + some(back))
	}
}
