// SPDX-License-Identifier: Apache-2.0

package dashboard

import "fmt"

// rows are the dashboard from top to bottom: what a person looks at first stands first.
func rows() []row {
	return []row{overview(), traffic(), backends(), packets(), tables(), process()}
}

func overview() row {
	return row{"Overview", []figure{
		{"Balancers", "Balancers that answer scrapes.", present, "short", []query{
			{`count(jeoul_build_info{` + anyInstance + `})`, ""}}},
		{"Problems", "Lines under “problems” in `jeoul status`.", present, "short", []query{
			{`sum(jeoul_problems{` + anyInstance + `})`, ""}}},
		{"Backends that take new flows", "Of all that are configured.", present, "percentunit", []query{
			{`sum(jeoul_service_backends_up{` + ofServices + `}) / sum(jeoul_service_backends{` + ofServices + `})`, ""}}},
		{"Services without a backend", "Nothing takes their new flows.", present, "short", []query{
			{`count(jeoul_service_backends_up{` + ofServices + `} == 0) or vector(0)`, ""}}},
		{"Configuration refused", "Balancers that have refused their last reload and go on as before.", present, "short", []query{
			{`count(jeoul_last_reload_successful{` + anyInstance + `} == 0) or vector(0)`, ""}}},
		{"Operations in force", "Backends that an operation has drained, disabled or weighted.", present, "short", []query{
			{`sum(jeoul_operations_in_force{` + anyInstance + `})`, ""}}},
	}}
}

func traffic() row {
	const bits = `8 * sum by (service) (rate(%s{` + ofServices + `}[$__rate_interval]))`
	return row{"Traffic", []figure{
		{"New connections", "By service.", series, "ops", []query{
			{`sum by (service) (rate(jeoul_backend_connections_total{` + ofServices + `}[$__rate_interval]))`, perService}}},
		{"To backends", "Bits a second, by service.", series, "bps", []query{
			{fmt.Sprintf(bits, "jeoul_backend_bytes_total"), perService}}},
		{"Back to clients", "Bits a second, by service; through the balancer in the modes nat and fullnat only.", series, "bps", []query{
			{fmt.Sprintf(bits, "jeoul_backend_returned_bytes_total"), perService}}},
	}}
}

func backends() row {
	return row{"Backends", []figure{
		{"States", "By what the balancer knows of each backend.", states, "", []query{
			{fmt.Sprintf(greatestOfBackend, "jeoul_backend_state"), perBackend}}},
		{"New connections", "By backend.", series, "ops", []query{
			{fmt.Sprintf(rateOfBackends, "jeoul_backend_connections_total"), perBackend}}},
		{"Refused", "SYNs answered by RST, and packets answered by ICMP destination unreachable; seen in the modes nat and fullnat.", series, "ops", []query{
			{fmt.Sprintf(rateOfBackends, "jeoul_backend_refused_total"), perBackend}}},
		{"Duration of health checks", "The last ones; of several, the longest.", series, "s", []query{
			{fmt.Sprintf(greatestOfBackend, "jeoul_backend_check_duration_seconds"), perBackend}}},
	}}
}

func packets() row {
	const rate = `sum by (outcome) (rate(jeoul_packets_total{` + anyInstance + `, outcome%s"}[$__rate_interval]))`
	return row{"Packets, by what became of them", []figure{
		{"Sent on and returned", "", series, "pps", []query{
			{fmt.Sprintf(rate, `=~"forwarded|returned`), "{{outcome}}"}}},
		{"Dropped and answered", "Each outcome that is not 0; `jeoul status` says what it means, `jeoul trace` which packets meet it.", series, "pps", []query{
			{fmt.Sprintf(rate, `=~"dropped_.*|answered_.*|reset_.*|unreachable_.*`) + " > 0 or vector(0)", "{{outcome}}"}}},
		{"Lost by drivers", "Frames that XDP has sent on and the driver lost.", series, "pps", []query{
			{`sum by (instance, interface) (rate(jeoul_interface_xdp_lost_frames_total{` + anyInstance + `}[$__rate_interval]))`, "{{instance}} {{interface}}"}}},
	}}
}

func tables() row {
	return row{"Tables", []figure{
		{"Room taken of flow tables", "Where proven flows fill theirs, raise flows.limit; many unproven flows are a SYN flood.", series, "percentunit", []query{
			{`max by (instance, table) (jeoul_flows{` + anyInstance + `} / jeoul_flows_limit{` + anyInstance + `})`, "{{instance}} {{table}}"}}},
		{"Ports of full NAT taken", "The backend that holds the most, by service.", series, "percentunit", []query{
			{`max by (service) (jeoul_backend_pool_ports_held{` + ofServices + `} / jeoul_backend_pool_ports_limit{` + ofServices + `})`, perService}}},
		{"Slots in transition", "Slots of hash tables that lead elsewhere than before a change, until their flows are known.", series, "short", []query{
			{`sum by (service) (jeoul_service_transition_moved_slots{` + ofServices + `})`, perService}}},
	}}
}

func process() row {
	return row{"The daemon", []figure{
		{"CPU", "Cores; packets are the kernel's work and not in it.", series, "short", []query{
			{`sum by (instance) (rate(process_cpu_seconds_total{` + anyInstance + `}[$__rate_interval]) and on (instance) jeoul_build_info)`, perInstance}}},
		{"Memory of the process", "Resident.", series, "bytes", []query{
			{`max by (instance) (process_resident_memory_bytes{` + anyInstance + `} and on (instance) jeoul_build_info)`, perInstance}}},
		{"Memory of the data plane", "Of the kernel, by what it is for.", series, "bytes", []query{
			{`sum by (instance, part) (jeoul_memory_bytes{` + anyInstance + `})`, "{{instance}} {{part}}"}}},
	}}
}
