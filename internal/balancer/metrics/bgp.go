// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// The families of BGP are there where the configuration has VIPs announced to routers.
var (
	bgpFamilies = []metric[*ops.BGP]{
		{family{"jeoul_bgp_speaker_up",
			"1 where a process speaks BGP to the routers, or has the VIPs in a table for a routing daemon of this host, and announces the VIPs that the balancer wants.", gauge, nil},
			always(func(b *ops.BGP) float64 { return boolValue(b.SpeakerPID != 0 && b.Problem == "") })},
		{family{"jeoul_bgp_drained", "1 while the balancer is taken out of every anycast (jeoul balancer drain).",
			gauge, nil},
			always(func(b *ops.BGP) float64 { return boolValue(b.Drained != nil) })},
	}
	peerFamilies = []metric[*ops.BGPPeer]{
		{family{"jeoul_bgp_peer_established", "1 where the session with the router is established.", gauge,
			[]string{"peer"}},
			always(func(p *ops.BGPPeer) float64 { return boolValue(p.Established()) })},
		{family{"jeoul_bgp_peer_sessions_total",
			"Sessions with the router that were established since the speaker was started.", counter, []string{"peer"}},
			always(func(p *ops.BGPPeer) float64 { return float64(p.Sessions) })},
		{family{"jeoul_bgp_peer_received_routes", "Routes that the router announces, none of which is used.", gauge,
			[]string{"peer"}},
			always(func(p *ops.BGPPeer) float64 { return float64(p.Received) })},
	}
	bfdFamilies = []metric[*ops.BGPPeer]{
		{family{"jeoul_bgp_peer_bfd_up", "1 where the BFD session with the router is up.", gauge, []string{"peer"}},
			always(func(p *ops.BGPPeer) float64 { return boolValue(p.BFD.Up()) })},
		{family{"jeoul_bgp_peer_bfd_failures_total", "How often BFD has lost the router since the speaker was started.",
			counter, []string{"peer"}},
			always(func(p *ops.BGPPeer) float64 { return float64(p.BFD.Failures) })},
		{family{"jeoul_bgp_peer_bfd_detection_seconds", "The silence after which BFD loses the router, as negotiated.",
			gauge, []string{"peer"}},
			always(func(p *ops.BGPPeer) float64 { return p.BFD.DetectionSeconds })},
		{family{"jeoul_bgp_peer_bfd_refused_packets_total",
			"Packets of BFD from the router's address that were not taken.", counter, []string{"peer"}},
			always(func(p *ops.BGPPeer) float64 { return float64(p.BFD.Refused) })},
		{family{"jeoul_bgp_peer_bfd_late_packets_total",
			"Packets of BFD that this host sent later than the promised interval.", counter, []string{"peer"}},
			always(func(p *ops.BGPPeer) float64 { return float64(p.BFD.Late) })},
	}
	vipAnnounced = metric[ops.AnnouncedVIP]{family{"jeoul_bgp_vip_announced", "1 where the VIP is announced to routers.", gauge,
		[]string{"vip"}},
		always(func(v ops.AnnouncedVIP) float64 { return boolValue(v.Announced) })}
)

// bgpMetrics makes the families of BGP.
func bgpMetrics(bgp *ops.BGP) []metricFamily {
	if bgp == nil {
		return nil
	}
	all := series(bgpFamilies, []*ops.BGP{bgp}, func(*ops.BGP) []string { return nil })
	all = append(all, series(peerFamilies, pointers(bgp.Peers), func(p *ops.BGPPeer) []string {
		return []string{p.Address}
	})...)
	watched := slices.DeleteFunc(pointers(bgp.Peers), func(p *ops.BGPPeer) bool { return p.BFD == nil })
	all = append(all, series(bfdFamilies, watched, func(p *ops.BGPPeer) []string { return []string{p.Address} })...)
	return append(all, series([]metric[ops.AnnouncedVIP]{vipAnnounced}, bgp.VIPs, func(v ops.AnnouncedVIP) []string {
		return []string{v.VIP.String()}
	})...)
}
