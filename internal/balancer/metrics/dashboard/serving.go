// SPDX-License-Identifier: Apache-2.0

package dashboard

// ofService is a metric of services, summed up by them.
func ofService(metric string) string {
	return `sum by (service) (` + metric + `{` + ofServices + `})`
}

// rateOfService is the rate of a counter of services.
func rateOfService(metric string) string {
	return `sum by (service) (rate(` + metric + `{` + ofServices + `}[$__rate_interval]))`
}

func operations() row {
	const join = ` * on (instance, service, backend, operation, by) group_left () `
	info := `max by (instance, service, backend, operation, by) (jeoul_operation_info{` + ofServices + `})`
	of := func(metric string) string {
		return `max by (instance, service, backend, operation, by) (` + metric + `{` + ofServices + `})`
	}
	return row{"Operations: drained backends, and until when", "", []figure{
		{
			title: "In force",
			about: "As `jeoul backend list` has it. Out: when a drained backend is taken out of its service.",
			kind:  listed,
			needs: needsOperation,
			queries: []query{
				{expression: `time() - ` + of("jeoul_operation_timestamp_seconds"), legend: "for", unit: "s"},
				{
					expression: `1000 * ` + of("jeoul_operation_deadline_timestamp_seconds") + join + info,
					legend:     "out",
					unit:       "dateTimeAsIso",
				},
				{expression: of("jeoul_operation_flows_left"), legend: "flows left", unit: "short"}},
		},
	}}
}

func health() row {
	return row{"Health and outliers", "", []figure{
		{
			title: "Backends that do not fail",
			about: "Of services with health checks, as a share.",
			needs: needsChecks,
			unit:  "percentunit",
			queries: []query{
				{
					expression: ofService("jeoul_service_backends_healthy") + ` / ` +
						ofService("jeoul_service_backends"),
					legend: perService,
				}},
		},
		{
			title: "Panic",
			about: "1: fewer backends are healthy than the panic threshold asks for, and new flows go to all of them.",
			needs: needsChecks,
			unit:  "short",
			queries: []query{
				{
					expression: `max by (instance, service) (jeoul_service_panic{` + ofServices + `})`,
					legend:     "{{instance}} {{service}}",
				}},
		},
		{
			title: "Ejected",
			about: "Backends that take no new flow for a while, for their answers to clients.",
			needs: needsOutliers,
			unit:  "short",
			queries: []query{
				{expression: `max by (service) (jeoul_service_backends_ejected{` + ofServices + `})`,
					legend: perService},
			},
		},
		{
			title: "Results of checks",
			about: "0 is failing, 1 healthy, 2 unknown.",
			needs: needsChecks,
			unit:  "short",
			queries: []query{
				{expression: `min by (service, backend) (jeoul_backend_health{` + ofServices + `})`,
					legend: perBackend}},
		},
		{
			title: "SYNs answered",
			about: "SYN and ACK of backends; seen in the modes nat and fullnat.",
			needs: needsPool,
			unit:  "ops",
			queries: []query{
				{
					expression: `sum by (service, backend) (rate(jeoul_backend_answered_total{` + ofServices +
						`}[$__rate_interval]))`,
					legend: perBackend,
				}},
		},
		{title: "Weights", about: "In force: operations and agents change them.", unit: "short", queries: []query{
			{expression: `max by (service, backend) (jeoul_backend_weight{` + ofServices + `})`, legend: perBackend}}},
	}}
}

func limits() row {
	return row{"Limits in use", "", []figure{
		{
			title: "Active flows, of a service's limit",
			about: "At 100 % new flows are refused.",
			needs: needsLimits,
			unit:  "percentunit",
			queries: []query{
				{
					expression: `max by (instance, service) (jeoul_service_active_flows{` + ofServices +
						`} / jeoul_service_active_flows_limit{` + ofServices + `})`,
					legend: "{{instance}} {{service}}",
				}},
		},
		{
			title: "New flows, of a service's rate",
			about: "At 100 % new flows are refused. Those that are refused are not in it.",
			needs: needsLimits,
			unit:  "percentunit",
			queries: []query{
				{expression: `sum by (instance, service) (rate(jeoul_backend_connections_total{` + ofServices +
					`}[$__rate_interval])) / max by (instance, service) (jeoul_service_rate_limit{` + ofServices + `})`,
					legend: "{{instance}} {{service}}"}},
		},
		{
			title: "Active flows, of a backend's upper",
			about: "At 100 % a backend is full, and new flows go to others.",
			needs: needsUpper,
			unit:  "percentunit",
			queries: []query{{expression: `max by (instance, service, backend) (jeoul_backend_active_flows{` +
				ofServices +
				`} / jeoul_backend_active_flows_limit{` + ofServices + `})`, legend: "{{instance}} " + perBackend}},
		},
		{title: "Flows", about: "Active and remembered ones, by service.", unit: "short", queries: []query{
			{
				expression: ofService("jeoul_service_active_flows"),
				legend:     perService + " active",
				needs:      "a service that remembers every flow",
			},
			{expression: ofService("jeoul_service_remembered_flows"), legend: perService + " remembered"}}},
	}}
}

func proxy() row {
	return row{"Proxy", needsProxy, []figure{
		{
			title: "Engine",
			about: "Whether HAProxy runs, its processes, and its reloads in an hour.",
			unit:  "short",
			queries: []query{
				{expression: maxOf("jeoul_proxy_up", "instance, version"),
					legend: "{{instance}} HAProxy {{version}} up"},
				{expression: maxOf("jeoul_proxy_workers", "instance"), legend: "{{instance}} processes"},
				{
					expression: `sum by (instance) (increase(jeoul_proxy_reloads_total{` + anyInstance + `}[1h]))`,
					legend:     "{{instance}} reloads",
				}},
		},
		{title: "Connections and requests", about: "Of clients.", unit: "ops", queries: []query{
			{expression: rateOfService("jeoul_service_proxy_connections_total"), legend: perService + " connections"},
			{expression: rateOfService("jeoul_service_proxy_requests_total"), legend: perService + " requests"}}},
		{title: "Responses", about: "By the first digit of their status.", unit: "ops", queries: []query{
			{
				expression: `sum by (service, class) (rate(jeoul_service_proxy_responses_total{` + ofServices +
					`}[$__rate_interval]))`,
				legend: "{{service}} {{class}}",
			}}},
		{title: "Server errors", about: "Responses of 5xx, as a share.", unit: "percentunit", queries: []query{
			{
				expression: `sum by (service) (rate(jeoul_service_proxy_responses_total{` + ofServices +
					`, class="5xx"}[$__rate_interval])) / sum by (service) ` +
					`(rate(jeoul_service_proxy_responses_total{` + ofServices + `}[$__rate_interval]))`,
				legend: perService,
			}}},
		{title: "Queue", about: "Requests and connections that wait for a backend.", unit: "short", queries: []query{
			{expression: ofService("jeoul_service_proxy_queued"), legend: perService}}},
		{title: "Turned away by rules", about: "", unit: "ops", queries: []query{
			{expression: rateOfService("jeoul_service_proxy_denied_total"), legend: perService}}},
		{title: "Content", about: "Bits a second, from and to clients.", unit: "bps", queries: []query{
			{
				expression: `8 * ` + rateOfService("jeoul_service_proxy_received_bytes_total"),
				legend:     perService + " from clients",
			},
			{expression: `8 * ` + rateOfService("jeoul_service_proxy_sent_bytes_total"), legend: perService +
				" to clients"}}},
		{title: "Requests, by backend", about: "", unit: "ops", queries: []query{
			{expression: perBackendRate("jeoul_backend_proxy_requests_total"), legend: perBackend}}},
		{
			title: "Trouble with backends",
			about: "Responses of 5xx, connections that could not be made, and those that were tried again.",
			unit:  "ops",
			queries: []query{
				{expression: perBackendRate("jeoul_backend_proxy_server_errors_total"), legend: perBackend + " 5xx"},
				{expression: perBackendRate("jeoul_backend_proxy_failed_total"), legend: perBackend + " failed"},
				{expression: perBackendRate("jeoul_backend_proxy_retried_total"), legend: perBackend + " retried"}},
		},
	}}
}

func perBackendRate(metric string) string {
	return `sum by (service, backend) (rate(` + metric + `{` + ofServices + `}[$__rate_interval]))`
}

func discovery() row {
	const origin, legend = "instance, service, origin", "{{instance}} {{service}} {{origin}}"
	of := func(metric string) string { return `max by (` + origin + `) (` + metric + `{` + ofServices + `})` }
	return row{"Discovery", needsDiscovery, []figure{
		{
			title:   "Backends found",
			about:   "",
			unit:    "short",
			queries: []query{{expression: of("jeoul_discovered_backends"), legend: legend}},
		},
		{
			title: "Failing, and refused",
			about: "1 where an origin gives no newer set; backends that it names and that cannot be any.",
			unit:  "short",
			queries: []query{
				{expression: of("jeoul_discovered_failing"), legend: legend + " failing"},
				{expression: of("jeoul_discovered_refused"), legend: legend + " refused"}},
		},
		{title: "Age of the set in use", about: "", unit: "s", queries: []query{
			{expression: `time() - ` + of("jeoul_discovered_timestamp_seconds"), legend: legend}}},
	}}
}

func locals() row {
	return row{"Clients on the balancer's own host", needsLocal, []figure{
		{
			title:   "Sockets with a backend",
			about:   "",
			unit:    "short",
			queries: []query{{expression: maxOf("jeoul_local_sockets", "instance"), legend: perInstance}},
		},
		{title: "Events", about: "", unit: "ops", queries: []query{
			{expression: sumRate("jeoul_local_events_total", "instance, event"), legend: "{{instance}} {{event}}"}}},
	}}
}
