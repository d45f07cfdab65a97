// SPDX-License-Identifier: Apache-2.0

package dashboard

import "slices"

// Why an expression may have no data.
const (
	needsBGP       = "bgp in the configuration"
	needsBFD       = "bfd at a router of bgp"
	needsVRRP      = "vrrp in the configuration"
	needsMembers   = "members in the configuration"
	needsHandOver  = "members that hand flows over"
	needsProxy     = "a service of mode proxy"
	needsDiscovery = "a service with discover"
	needsChecks    = "a service with health checks"
	needsOutliers  = "a service with outliers"
	needsLimits    = "a service with limits"
	needsUpper     = "a backend with upper"
	needsPool      = "a service of mode fullnat"
	needsLocal     = "local in the configuration"
	needsOperation = "an operation in force"
	needsNode      = "node_exporter on the balancer's host"
	needsDevice    = "an interface with XDP"
)

// sumRate is a rate of a counter, summed by labels.
func sumRate(metric, by string) string {
	return `sum by (` + by + `) (rate(` + metric + `{` + anyInstance + `}[$__rate_interval]))`
}

// maxOf is the greatest present value of a gauge, by labels.
func maxOf(metric, by string) string {
	return `max by (` + by + `) (` + metric + `{` + anyInstance + `})`
}

func bgp() row {
	const peer, legend = "instance, peer", "{{instance}} {{peer}}"
	return row{"BGP and BFD", needsBGP, slices.Concat([]figure{
		{title: "Sessions with routers", about: "1 is established.", unit: "short", queries: []query{
			{expression: maxOf("jeoul_bgp_peer_established", peer), legend: legend}}},
		{
			title: "VIPs announced",
			about: "1 where the VIP is announced to routers; it is withdrawn where no backend serves, and by a drain.",
			unit:  "short",
			queries: []query{{expression: maxOf("jeoul_bgp_vip_announced", "instance, vip"),
				legend: "{{instance}} {{vip}}"}},
		},
		{
			title: "Speaker and drain",
			about: "The process that speaks BGP announces the VIPs that the balancer wants, and the balancer is taken out of every anycast.",
			unit:  "short",
			queries: []query{
				{expression: maxOf("jeoul_bgp_speaker_up", "instance"), legend: "{{instance}} speaker"},
				{expression: maxOf("jeoul_bgp_drained", "instance"), legend: "{{instance}} drained"}},
		},
		{
			title: "Sessions established",
			about: "More than one in a while is a session that flaps.",
			unit:  "short",
			queries: []query{
				{
					expression: `sum by (instance, peer) (increase(jeoul_bgp_peer_sessions_total{` +
						anyInstance + `}[1h]))`,
					legend: legend,
				}},
		},
		{title: "Routes received", about: "None of them is used.", unit: "short", queries: []query{
			{expression: maxOf("jeoul_bgp_peer_received_routes", peer), legend: legend}}},
	}, bfd(peer, legend))}
}

// bfd are the figures of BFD with the routers.
func bfd(peer, legend string) []figure {
	return []figure{
		{
			title: "BFD",
			about: "1 where the BFD session is up, and how often it failed in an hour.",
			needs: needsBFD,
			unit:  "short",
			queries: []query{
				{expression: maxOf("jeoul_bgp_peer_bfd_up", peer), legend: legend + " up"},
				{
					expression: `sum by (instance, peer) (increase(jeoul_bgp_peer_bfd_failures_total{` +
						anyInstance + `}[1h]))`,
					legend: legend + " lost",
				}},
		},
		{
			title: "BFD: time to detect",
			about: "The silence after which a router is lost, as negotiated.",
			needs: needsBFD,
			unit:  "s",
			queries: []query{
				{expression: maxOf("jeoul_bgp_peer_bfd_detection_seconds", peer), legend: legend}},
		},
		{
			title: "BFD: packets refused, and sent late",
			about: "Late ones are this host's: it had no CPU time.",
			needs: needsBFD,
			unit:  "pps",
			queries: []query{
				{expression: sumRate("jeoul_bgp_peer_bfd_refused_packets_total", peer), legend: legend + " refused"},
				{expression: sumRate("jeoul_bgp_peer_bfd_late_packets_total", peer), legend: legend + " late"}},
		},
	}
}

func vrrp() row {
	const router, legend = "instance, vrid", "{{instance}} {{vrid}}"
	return row{"VRRP", needsVRRP, []figure{
		{
			title: "Who holds the VIPs",
			about: "1 is active. Exactly one of a segment should be.",
			unit:  "short",
			queries: []query{
				{expression: maxOf("jeoul_vrrp_active", router), legend: legend + " active"},
				{expression: maxOf("jeoul_vrrp_backup", router), legend: legend + " backup"}},
		},
		{
			title: "Two are active",
			about: "1 while another balancer is active beside this one, and how often that was found.",
			unit:  "short",
			queries: []query{
				{expression: maxOf("jeoul_vrrp_two_active", router), legend: legend},
				{
					expression: `sum by (instance, vrid) (increase(jeoul_vrrp_conflicts_total{` +
						anyInstance + `}[1h]))`,
					legend: legend + " in an hour",
				}},
		},
		{
			title: "Priority",
			about: "As it is announced: less where services have no backend.",
			unit:  "short",
			queries: []query{
				{expression: maxOf("jeoul_vrrp_priority", router), legend: legend}},
		},
		{title: "Time in the state", about: "", unit: "s", queries: []query{
			{expression: `time() - ` + maxOf("jeoul_vrrp_since_timestamp_seconds", router), legend: legend}}},
		{title: "Changes in an hour", about: "", unit: "short", queries: []query{
			{
				expression: `sum by (instance, vrid) (increase(jeoul_vrrp_changes_total{` + anyInstance + `}[1h]))`,
				legend:     legend,
			}}},
		{
			title: "Advertisements",
			about: "Rejected ones are malformed or forwarded, ignored ones have none of the own VIPs.",
			unit:  "pps",
			queries: []query{
				{expression: sumRate("jeoul_vrrp_sent_total", router), legend: legend + " sent"},
				{expression: sumRate("jeoul_vrrp_received_total", router), legend: legend + " received"},
				{expression: sumRate("jeoul_vrrp_rejected_total", router), legend: legend + " rejected"},
				{expression: sumRate("jeoul_vrrp_ignored_total", router), legend: legend + " ignored"}},
		},
		{
			title:   "VIPs announced to neighbours again",
			about:   "Because another balancer was active, or announce_interval had passed.",
			unit:    "ops",
			queries: []query{{expression: sumRate("jeoul_vrrp_announcements_total", router), legend: legend}},
		},
	}}
}

func members() row {
	const member, legend = "instance, member", "{{instance}} to {{member}}"
	return row{"Members and hand-over", needsMembers, slices.Concat([]figure{
		{title: "Members reached", about: "1 where the other balancer answers.", unit: "short", queries: []query{
			{expression: maxOf("jeoul_member_up", member), legend: legend}}},
		{
			title:   "Services that differ",
			about:   "The other balancer sends their new flows to other backends, for longer than a change takes.",
			unit:    "short",
			queries: []query{{expression: maxOf("jeoul_member_services_differing", member), legend: legend}},
		},
		{title: "Refused at the members' port", about: "From unknown hosts, or with another key.", unit: "pps",
			queries: []query{
				{expression: sumRate("jeoul_members_refused_total", "instance"), legend: perInstance}}},
	}, handOver(member, legend), []figure{
		{
			title: "Tables that differ",
			about: "Digests of each service: more than one is a service that two balancers send elsewhere.",
			unit:  "short",
			queries: []query{
				{
					expression: `count by (service) (count by (service, digest) (jeoul_service_table_info{` +
						ofServices + `}))`,
					legend: perService,
				},
			},
		},
	})}
}

// handOver are the figures of the hand-over of flows to the other members.
func handOver(member, legend string) []figure {
	return []figure{
		{
			title:   "Hand-over: connected",
			about:   "1 where flows are sent to the other balancer and received from it.",
			needs:   needsHandOver,
			unit:    "short",
			queries: []query{{expression: maxOf("jeoul_member_flows_connected", member), legend: legend}},
		},
		{
			title:   "Hand-over: behind",
			about:   "Flows that the other balancer has not acknowledged: they break if this one fails now.",
			needs:   needsHandOver,
			unit:    "short",
			queries: []query{{expression: maxOf("jeoul_member_flows_behind", member), legend: legend}},
		},
		{
			title: "Hand-over: flows",
			about: "Told to the other balancer, taken over from it, and refused.",
			needs: needsHandOver,
			unit:  "ops",
			queries: []query{
				{expression: sumRate("jeoul_member_flows_told_total", member), legend: legend + " told"},
				{expression: sumRate("jeoul_member_flows_taken_total", member), legend: legend + " taken"},
				{expression: sumRate("jeoul_member_flows_refused_total", member), legend: legend + " refused"}},
		},
		{
			title: "Hand-over: all flows sent again",
			about: "More waited for the other balancer than may.",
			needs: needsHandOver,
			unit:  "short",
			queries: []query{
				{
					expression: `sum by (instance, member) (increase(jeoul_member_flows_overflows_total{` +
						anyInstance + `}[1h]))`,
					legend: legend,
				}},
		},
	}
}
