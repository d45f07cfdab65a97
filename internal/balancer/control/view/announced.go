// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Serving counts the backends of service i that are reachable and healthy. Failing backends that are used because too
// few are healthy do not count.
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

// WhyUnannounced returns why a VIP is not announced to routers; empty if it is.
func (v *View) WhyUnannounced(vip netip.Addr) string {
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

// AnnouncedVIPs returns the VIPs to announce to routers, in the configuration's order.
func (v *View) AnnouncedVIPs() (vips []netip.Addr) {
	if !v.Config.BGP.On() {
		return nil
	}
	for _, vip := range VIPsOf(v.Config) {
		if v.WhyUnannounced(vip) == "" {
			vips = append(vips, vip)
		}
	}
	return vips
}

// AnnouncedPool returns the addresses of full NAT to announce to routers: this balancer's own, and those of others as a
// backup, so that replies to them come here when the others fail. There are none if the pool is not divided, because no
// other balancer uses it then.
func (v *View) AnnouncedPool() (own, others []netip.Addr) {
	if !v.Config.BGP.On() || v.Passive || v.Joining != "" || !v.Config.PoolIsDivided() {
		return nil, nil
	}
	pool := v.Config.Pool()
	return pool.Addresses, pool.Others
}

// ByAddress reports whether packets come to this balancer only because the VIPs are on its interface: there are
// members, and neither BGP nor VRRP.
func (l *Layout) ByAddress() bool {
	return l.Config.Members.Listen.IsValid() && !l.Config.BGP.On() && l.Config.VRRP.ID == 0
}

// WithdrawsAll reports whether this balancer receives no packets for any VIP while it leaves them to others. A VIP that
// BGP never announces may still receive some, because this balancer does not control what else routes to it.
func (l *Layout) WithdrawsAll() bool {
	if !l.SharesVIPs() {
		return false
	}
	for _, s := range l.Config.Services {
		if l.Config.BGP.On() && l.Config.VRRP.ID == 0 && s.Announcement.Never {
			return false
		}
	}
	return true
}

// BackendWithoutVerdict names a backend that would take new flows, but on which its checks have no verdict, or only an
// outdated one of the previous process. It is empty if there is none.
func (v *View) BackendWithoutVerdict() string {
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

// SharesVIPs reports whether other balancers may have the VIPs, too.
func (l *Layout) SharesVIPs() bool {
	return l.Config.BGP.On() || l.Config.VRRP.ID != 0 || l.Config.Members.Listen.IsValid()
}

// A VIP whose services all have on_empty: withdraw is on the interface only while a backend of one of them serves.
// Which VIPs are withdrawn follows from the desired state alone, so that a start, a reload and a verdict lead to the
// same result.

// Withdrawn reports whether a VIP is not on the interface because no backend serves.
func (v *View) Withdrawn(vip netip.Addr) bool {
	services, yields := v.Withdrawable[vip]
	return yields && !slices.ContainsFunc(services, func(i int) bool {
		return i < len(v.State.Services) && v.State.Services[i].Serves()
	})
}

// AddressesHeld returns the desired addresses of the first interface: none if another balancer holds them, or if they
// would attract flows that only others know yet, and no VIP that is withdrawn.
func (v *View) AddressesHeld() []netip.Addr {
	if v.Passive || v.Joining != "" && v.ByAddress() {
		return nil
	}
	if len(v.Withdrawable) == 0 {
		return v.Addresses
	}
	return slices.DeleteFunc(slices.Clone(v.Addresses), v.Withdrawn)
}
