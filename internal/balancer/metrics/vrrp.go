// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/netip"
	"strconv"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// vrrpFamilies are there where balancers of a segment share the VIPs.
var vrrpFamilies = []metric[*ops.VRRP]{
	{family{"jeoul_vrrp_active", "1 while this balancer holds the VIPs that it shares by VRRP.", gauge,
		[]string{"vrid"}},
		always(func(v *ops.VRRP) float64 { return boolValue(v.State == "active") })},
	{family{"jeoul_vrrp_backup",
		"1 while another balancer holds the VIPs; 0 beside an active one that is 0 means that this balancer takes no part.", gauge, []string{"vrid"}},
		always(func(v *ops.VRRP) float64 { return boolValue(v.State == "backup") })},
	{family{"jeoul_vrrp_since_timestamp_seconds", "When the state began, in seconds since 1970.", gauge,
		[]string{"vrid"}},
		always(func(v *ops.VRRP) float64 { return float64(v.Since.UnixMilli()) / 1000 })},
	{family{"jeoul_vrrp_priority", "The priority as it is announced.", gauge, []string{"vrid"}},
		always(func(v *ops.VRRP) float64 { return float64(v.Priority) })},
	{family{"jeoul_vrrp_two_active", "1 while another balancer is active beside this one.", gauge, []string{"vrid"}},
		always(func(v *ops.VRRP) float64 { return boolValue(v.Both) })},
	{family{"jeoul_vrrp_conflicts_total", "How often two balancers were found active at once.", counter,
		[]string{"vrid"}},
		always(func(v *ops.VRRP) float64 { return float64(v.Conflicts) })},
	{family{"jeoul_vrrp_changes_total", "Changes of the state since the daemon started.", counter, []string{"vrid"}},
		always(func(v *ops.VRRP) float64 { return float64(v.Changes) })},
	{family{"jeoul_vrrp_sent_total", "Advertisements sent.", counter, []string{"vrid"}},
		always(func(v *ops.VRRP) float64 { return float64(v.Sent) })},
	{family{"jeoul_vrrp_received_total", "Advertisements received of other balancers.", counter, []string{"vrid"}},
		always(func(v *ops.VRRP) float64 { return float64(v.Received) })},
	{family{"jeoul_vrrp_rejected_total",
		"Packets that were not taken: a router has forwarded them, another version, a wrong checksum.", counter,
		[]string{"vrid"}},
		always(func(v *ops.VRRP) float64 { return float64(v.Rejected) })},
	{family{"jeoul_vrrp_ignored_total",
		"Advertisements that were ignored: they have the own id and none of the own VIPs.",
		counter, []string{"vrid"}},
		always(func(v *ops.VRRP) float64 { return float64(v.Ignored) })},
	{family{"jeoul_vrrp_announcements_total",
		"How often the VIPs were to be announced to the neighbours again, because " +
			"another balancer was active or announce_interval had passed.", counter, []string{"vrid"}},
		always(func(v *ops.VRRP) float64 { return float64(v.Announcements) })},
}

// sharedVIP is a VIP that balancers share by VRRP.
type sharedVIP struct {
	*ops.VRRP
	vip netip.Addr
}

// sharedVIPActive names the VIPs, because the id alone does not tell a virtual router from one of another segment.
var sharedVIPActive = metric[sharedVIP]{family{"jeoul_vrrp_vip_active",
	"1 while this balancer is the active one of the virtual router that has the VIP.", gauge, []string{"vrid", "vip"}},
	always(func(v sharedVIP) float64 { return boolValue(v.State == "active") })}

// vrrpMetrics makes the families of how the VIPs of these services are shared.
func vrrpMetrics(v *ops.VRRP, services []ops.Service) []metricFamily {
	if v == nil {
		return nil
	}
	id := strconv.Itoa(int(v.ID))
	all := series(vrrpFamilies, []*ops.VRRP{v}, func(*ops.VRRP) []string { return []string{id} })
	var vips []sharedVIP
	seen := map[netip.Addr]bool{}
	for i := range services {
		if vip := services[i].VIP; !seen[vip] {
			seen[vip] = true
			vips = append(vips, sharedVIP{v, vip})
		}
	}
	return append(all, series([]metric[sharedVIP]{sharedVIPActive}, vips, func(s sharedVIP) []string {
		return []string{id, s.vip.String()}
	})...)
}
