// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"slices"
)

// rows are the dashboard from top to bottom: the figures that a person looks at first come first.
func rows() []row {
	return []row{
		overview(),
		operations(),
		traffic(),
		backends(),
		health(),
		packets(),
		limits(),
		tables(),
		bgp(),
		vrrp(),
		members(),
		proxy(),
		discovery(),
		locals(),
		process(),
	}
}

func overview() row {
	return row{"Overview", "", []figure{
		{title: "Balancers", about: "Balancers that answer scrapes.", kind: present, unit: "short", queries: []query{
			{expression: `count(jeoul_build_info{` + anyInstance + `})`, legend: ""}}},
		{
			title: "Problems",
			about: "Lines under “problems” in `jeoul status`.",
			kind:  present,
			unit:  "short",
			queries: []query{
				{expression: `sum(jeoul_problems{` + anyInstance + `})`, legend: ""}},
		},
		{
			title: "Backends that take new flows",
			about: "Of all that are configured.",
			kind:  present,
			unit:  "percentunit",
			queries: []query{
				{
					expression: `sum(jeoul_service_backends_up{` + ofServices + `}) / sum(jeoul_service_backends{` +
						ofServices + `})`,
					legend: "",
				}},
		},
		{
			title: "Services without a backend",
			about: "Nothing takes their new flows.",
			kind:  present,
			unit:  "short",
			queries: []query{
				{expression: `count(jeoul_service_backends_up{` + ofServices + `} == 0) or vector(0)`, legend: ""}},
		},
		{
			title: "Configuration refused",
			about: "Balancers that have refused their last reload and go on as before.",
			kind:  present,
			unit:  "short",
			queries: []query{
				{expression: `count(jeoul_last_reload_successful{` + anyInstance + `} == 0) or vector(0)`, legend: ""}},
		},
		{
			title: "Operations in force",
			about: "Backends that an operation has drained, disabled or weighted.",
			kind:  present,
			unit:  "short",
			queries: []query{
				{expression: `sum(jeoul_operations_in_force{` + anyInstance + `})`, legend: ""}},
		},
	}}
}

func traffic() row {
	const bits = `8 * sum by (service) (rate(%s{` + ofServices + `}[$__rate_interval]))`
	return row{"Traffic", "", []figure{
		{title: "New connections", about: "By service.", kind: series, unit: "ops", queries: []query{
			{
				expression: `sum by (service) (rate(jeoul_backend_connections_total{` + ofServices +
					`}[$__rate_interval]))`,
				legend: perService,
			}}},
		{title: "To backends", about: "Bits a second, by service.", kind: series, unit: "bps", queries: []query{
			{expression: fmt.Sprintf(bits, "jeoul_backend_bytes_total"), legend: perService}}},
		{
			title: "Back to clients",
			about: "Bits a second, by service; through the balancer in the modes nat and fullnat only.",
			kind:  series,
			unit:  "bps",
			queries: []query{
				{expression: fmt.Sprintf(bits, "jeoul_backend_returned_bytes_total"), legend: perService}},
		},
	}}
}

func backends() row {
	return row{"Backends", "", []figure{
		{title: "States", about: "By the state that the balancer knows of each backend.", kind: states, unit: "",
			queries: []query{
				{expression: fmt.Sprintf(greatestOfBackend, "jeoul_backend_state"), legend: perBackend}}},
		{title: "New connections", about: "By backend.", kind: series, unit: "ops", queries: []query{
			{expression: fmt.Sprintf(rateOfBackends, "jeoul_backend_connections_total"), legend: perBackend}}},
		{
			title: "Refused",
			about: "SYNs answered by RST, and packets answered by ICMP destination unreachable; seen in the modes nat and fullnat.",
			kind:  series,
			unit:  "ops",
			queries: []query{
				{expression: fmt.Sprintf(rateOfBackends, "jeoul_backend_refused_total"), legend: perBackend}},
		},
		{
			title: "Duration of health checks",
			about: "The last ones; of several, the longest.",
			kind:  series,
			unit:  "s",
			queries: []query{
				{expression: fmt.Sprintf(greatestOfBackend, "jeoul_backend_check_duration_seconds"),
					legend: perBackend}},
		},
	}}
}

func packets() row {
	const rate = `sum by (outcome) (rate(jeoul_packets_total{` + anyInstance + `, outcome%s"}[$__rate_interval]))`
	return row{"Packets, by outcome", "", []figure{
		{title: "Sent on and returned", about: "", kind: series, unit: "pps", queries: []query{
			{expression: fmt.Sprintf(rate, `=~"forwarded|returned`), legend: "{{outcome}}"}}},
		{
			title: "Dropped and answered",
			about: "Each outcome that is not 0; `jeoul status` has its meaning, `jeoul trace` the packets that meet it.",
			kind:  series,
			unit:  "pps",
			queries: []query{
				{
					expression: fmt.Sprintf(rate, `=~"dropped_.*|answered_.*|reset_.*|unreachable_.*`) +
						" > 0 or vector(0)",
					legend: "{{outcome}}",
				}},
		},
		{
			title: "Lost by drivers",
			about: "Frames that XDP has sent on and the driver lost.",
			kind:  series,
			unit:  "pps",
			queries: []query{
				{
					expression: `sum by (instance, interface) (rate(jeoul_interface_xdp_lost_frames_total{` +
						anyInstance + `}[$__rate_interval]))`,
					legend: "{{instance}} {{interface}}",
				}},
		},
		{
			title: "CPU per packet",
			about: "Time that all CPUs of the host spend in softirqs, where packets are processed, for each packet that the balancer " +
				"has seen; other traffic of the host is in it.",
			needs: needsNode,
			unit:  "s",
			queries: []query{
				{
					expression: `sum by (host) (label_replace(rate(node_cpu_seconds_total{mode="softirq"}[$__rate_interval]), "host", "$1", "instance", "([^:]+).*"))` +
						` / sum by (host) (label_replace(rate(jeoul_packets_total{` + anyInstance +
						`}[$__rate_interval]), "host", "$1", "instance", "([^:]+).*"))`,
					legend: "{{host}}",
				}},
		},
		{title: "To backends", about: "", unit: "pps", queries: []query{
			{expression: rateOfService("jeoul_backend_packets_total"), legend: perService}}},
		{
			title: "Back to clients",
			about: "Through the balancer in the modes nat and fullnat only.",
			unit:  "pps",
			queries: []query{
				{expression: rateOfService("jeoul_backend_returned_packets_total"), legend: perService}},
		},
	}}
}

func tables() row {
	return row{"Tables", "", []figure{
		{
			title: "Room taken of flow tables",
			about: "Where proven flows fill theirs, raise flows.limit; many unproven flows are a SYN flood.",
			kind:  series,
			unit:  "percentunit",
			queries: []query{
				{
					expression: `max by (instance, table) (jeoul_flows{` + anyInstance + `} / jeoul_flows_limit{` +
						anyInstance + `})`,
					legend: "{{instance}} {{table}}",
				}},
		},
		{
			title: "Ports of full NAT taken",
			about: "The backend that holds the most, by service.",
			kind:  series,
			unit:  "percentunit",
			queries: []query{
				{
					expression: `max by (service) (jeoul_backend_pool_ports_held{` + ofServices +
						`} / jeoul_backend_pool_ports_limit{` + ofServices + `})`,
					legend: perService,
				}},
		},
		{
			title: "Slots in transition",
			about: "Slots of hash tables that lead elsewhere than before a change, until their flows are known.",
			kind:  series,
			unit:  "short",
			queries: []query{
				{expression: `sum by (service) (jeoul_service_transition_moved_slots{` + ofServices + `})`,
					legend: perService}},
		},
	}}
}

func process() row {
	return row{"The daemon", "", slices.Concat(processResources(), processState())}
}

// processResources are the figures of the daemon's CPU time and memory.
func processResources() []figure {
	return []figure{
		{
			title: "CPU",
			about: "Cores; packets are the kernel's work and not in it.",
			kind:  series,
			unit:  "short",
			queries: []query{
				{
					expression: `sum by (instance) (rate(process_cpu_seconds_total{` + anyInstance +
						`}[$__rate_interval]) and on (instance) jeoul_build_info)`,
					legend: perInstance,
				}},
		},
		{title: "Memory of the process", about: "Resident.", kind: series, unit: "bytes", queries: []query{
			{
				expression: `max by (instance) (process_resident_memory_bytes{` + anyInstance +
					`} and on (instance) jeoul_build_info)`,
				legend: perInstance,
			}}},
		{
			title: "Memory of the data plane",
			about: "Of the kernel, by purpose.",
			kind:  series,
			unit:  "bytes",
			queries: []query{
				{expression: `sum by (instance, part) (jeoul_memory_bytes{` + anyInstance + `})`,
					legend: "{{instance}} {{part}}"}},
		},
	}
}

// processState are the figures of the daemon's troubles, and of its configuration.
func processState() []figure {
	return []figure{
		{
			title: "Trouble",
			about: "Problems of `jeoul status`, files that only a restart needs and that cannot be written, and failed attempts in an hour.",
			unit:  "short",
			queries: []query{
				{expression: maxOf("jeoul_problems", "instance"), legend: "{{instance}} problems"},
				{
					expression: `sum by (instance, kept) (jeoul_unwritten_files{` + anyInstance + `})`,
					legend:     "{{instance}} unwritten, kept by the {{kept}}",
				},
				{
					expression: `sum by (instance) (increase(jeoul_file_write_failures_total{` +
						anyInstance + `}[1h]))`,
					legend: "{{instance}} failed writes",
				}},
		},
		{
			title: "Refused at the API over TCP",
			about: "By the credentials or role that the client lacked. Many are someone who guesses tokens.",
			unit:  "ops",
			queries: []query{
				{expression: sumRate("jeoul_api_denied_total", "instance, lacking"), legend: "{{instance}} {{lacking}}"}},
		},
		{title: "Age of the configuration", about: "Since the one in force was applied.", unit: "s", queries: []query{
			{expression: `time() - ` + maxOf("jeoul_last_reload_success_timestamp_seconds", "instance"),
				legend: perInstance}}},
		{
			title: "Changes of the data plane",
			about: "States that it was given: reloads, operations, health, neighbours.",
			unit:  "ops",
			queries: []query{
				{
					expression: `sum by (instance) (rate(jeoul_configuration_generation{` + anyInstance +
						`}[$__rate_interval]))`,
					legend: perInstance,
				}},
		},
		{title: "Interfaces", about: "1 is up.", unit: "short", queries: []query{
			{expression: maxOf("jeoul_interface_up", "instance, interface"), legend: "{{instance}} {{interface}}"}}},
		{
			title: "Backends without series",
			about: "There are more than metrics.backends: figures by backend are empty.",
			unit:  "short",
			queries: []query{
				{expression: maxOf("jeoul_backends_without_series", "instance"), legend: perInstance}},
		},
	}
}
