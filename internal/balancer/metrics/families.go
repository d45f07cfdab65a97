// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// The counters of reloads and of denied requests are kept apart: a status does not have them.
var (
	deniedTotal = family{"jeoul_api_denied_total",
		"Requests to the API over TCP that were refused, by what the client lacked: credentials, or a role for its certificate.", counter, []string{"lacking"}}
	reloadsTotal = family{"jeoul_reloads_total", "Reloads of the configuration, by result.",
		counter, []string{"result"}}
	lastReloadSuccessful = family{"jeoul_last_reload_successful",
		"1 where the last reload was applied, or there was none; 0 where it was refused and the balancer went on as it was.", gauge, nil}
	lastReloadSuccess = family{"jeoul_last_reload_success_timestamp_seconds",
		"When the configuration in force was applied.", gauge, nil}
)

var balancerFamilies = []metric[*ops.Status]{
	{family{"jeoul_build_info", "1, with the version of the program.", gauge, []string{"version"}},
		always(func(*ops.Status) float64 { return 1 })},
	{family{"jeoul_configuration_generation", "Counts the states that the data plane was given since the start.",
		gauge, nil},
		always(func(s *ops.Status) float64 { return float64(s.Generation) })},
	{family{"jeoul_problems", "Faults that need attention now: the lines under “problems” in the status.",
		gauge, nil},
		always(func(s *ops.Status) float64 { return float64(len(s.Problems)) })},
	{family{"jeoul_operations_in_force",
		"Backends that an operation has drained or given another weight than the configuration's.", gauge, nil},
		always(func(s *ops.Status) float64 { return float64(len(s.Operations.InForce)) })},
	{family{"jeoul_file_write_failures_total",
		"Attempts that failed to write a file that only a restart needs, since the start.", counter, nil},
		always(func(s *ops.Status) float64 { return float64(s.WriteFailures) })},
}

// unwrittenFiles has a series for each place where the contents are meanwhile.
var unwrittenFiles = metric[part]{
	family{"jeoul_unwritten_files",
		"Files that only a restart needs and that cannot be written now, by where their content is meanwhile: the kernel, or this process alone.", gauge, []string{"kept"}},
	always(func(p part) float64 { return float64(p.value) })}

// packetsTotal has a series for each outcome, those of no packet too.
var packetsTotal = metric[ops.Outcome]{
	family{"jeoul_packets_total", "Packets by outcome; each is in exactly one.", counter,
		[]string{"outcome"}},
	always(func(o ops.Outcome) float64 { return float64(o.Packets) })}

var interfaceFamilies = []metric[*ops.Interface]{
	{family{"jeoul_interface_info",
		"1, with the hook that takes an interface's packets, and whether that is generic XDP.", gauge,
		[]string{"interface", "hook", "generic", "driver"}},
		always(func(*ops.Interface) float64 { return 1 })},
	{family{"jeoul_interface_up", "1 where an interface is switched on and has a carrier.", gauge,
		[]string{"interface"}},
		always(func(i *ops.Interface) float64 { return boolValue(i.Up) })},
	{family{"jeoul_interface_xdp_lost_frames_total",
		"Frames that were counted as sent on, and that the driver lost then, as far as it counts them.", counter,
		[]string{"interface"}},
		always(func(i *ops.Interface) float64 { return float64(i.XDPLost) })},
}

// localSockets and localEvents are there where clients on the balancer's own host are served.
var (
	localSockets = metric[*ops.Local]{family{"jeoul_local_sockets",
		"Sockets of clients on the balancer's own host that have a backend.", gauge, nil},
		always(func(l *ops.Local) float64 { return float64(l.Sockets) })}
	localEvents = metric[ops.LocalEvent]{family{"jeoul_local_events_total",
		"Events of sockets of clients on the balancer's own host that asked for a VIP.", counter,
		[]string{"event"}},
		always(func(e ops.LocalEvent) float64 { return float64(e.Count) })}
)

// part is a part of something, by its name.
type part struct {
	name  string
	value uint64
}

var (
	flowsNow = metric[part]{family{"jeoul_flows",
		"Flows that are remembered: proven ones, whose client has shown that it is there, and others.", gauge,
		[]string{"table"}}, partValue}
	flowsLimit = metric[part]{family{"jeoul_flows_limit", "Flows that there is room for.", gauge, []string{"table"}},
		partValue}
	memoryBytes = metric[part]{family{"jeoul_memory_bytes", "Kernel memory of the data plane, by purpose.", gauge,
		[]string{"part"}}, partValue}
	// backendsWithoutSeries says that the series of each backend are left out.
	backendsWithoutSeries = metric[part]{family{"jeoul_backends_without_series",
		"Backends that have no series of their own, for there are more than metrics.backends; 0 where all have.", gauge,
		nil}, partValue}
)

var partValue = always(func(p part) float64 { return float64(p.value) })

var serviceFamilies = []metric[*ops.Service]{
	{family{"jeoul_service_info", "1, with the properties of a service.", gauge, []string{"service", "vip", "port", "protocol",
		"mode", "scheduler"}},
		always(func(*ops.Service) float64 { return 1 })},
	{family{"jeoul_service_backends", "Backends that are configured.", gauge, []string{"service"}},
		always(func(s *ops.Service) float64 { return float64(len(s.Backends)) })},
	{family{"jeoul_service_backends_up", "Backends that take new flows.", gauge, []string{"service"}},
		always(func(s *ops.Service) float64 { return float64(backendsUp(s)) })},
	{family{"jeoul_service_backends_healthy",
		"Backends that do not fail their health checks, of a service that has any.", gauge, []string{"service"}},
		func(s *ops.Service) (float64, bool) { return float64(backendsHealthy(s)), len(s.Checks) > 0 }},
	{family{"jeoul_service_backends_ejected",
		"Backends that take no new flow for a while, for they fail most of their new flows, of a service with outliers.",
		gauge, []string{"service"}},
		func(s *ops.Service) (float64, bool) { return float64(backendsEjected(s)), s.Outliers != nil }},
	{family{"jeoul_service_panic",
		"1 where fewer backends are healthy than the service's panic threshold asks for, and new flows go to all of them.", gauge, []string{"service"}},
		func(s *ops.Service) (float64, bool) { return boolValue(s.Serving == ops.ServingAll), len(s.Checks) > 0 }},
	{family{"jeoul_service_active_flows", "Flows that have not ended, of a service that remembers every flow.", gauge,
		[]string{"service"}},
		func(s *ops.Service) (float64, bool) { return float64(s.Active), s.Tracked }},
	{family{"jeoul_service_active_flows_limit",
		"How many active flows a service may have, where limits.connections bounds them.",
		gauge, []string{"service"}},
		ofLimits(func(l *ops.Limits) uint32 { return l.Connections })},
	{family{"jeoul_service_rate_limit", "New flows a second that a service lets in, where limits.rate bounds them.",
		gauge, []string{"service"}},
		ofLimits(func(l *ops.Limits) uint32 { return l.Rate })},
	{family{"jeoul_service_remembered_flows",
		"Flows that are remembered, those that have ended until they are forgotten.", gauge, []string{"service"}},
		always(func(s *ops.Service) float64 { return float64(s.Flows) })},
	{family{"jeoul_service_transition_moved_slots",
		"Slots of the hash table that lead to another backend than before a change whose transition is under way; 0 where there is none.", gauge, []string{"service"}},
		always(func(s *ops.Service) float64 {
			if s.Transition == nil {
				return 0
			}
			return float64(s.Transition.MovedSlots)
		})},
}

// ofLimits is a bound of services that have it.
func ofLimits(value func(*ops.Limits) uint32) func(*ops.Service) (float64, bool) {
	return func(s *ops.Service) (float64, bool) {
		if s.Limits == nil {
			return 0, false
		}
		bound := value(s.Limits)
		return float64(bound), bound > 0
	}
}

// tableInfo is the family of services that have a table.
var tableInfo = metric[*ops.Service]{
	family{"jeoul_service_table_info",
		"1, with a digest that is equal on two balancers exactly when they send new flows of a service to the same backends.", gauge, []string{"service", "digest"}},
	func(s *ops.Service) (float64, bool) { return 1, s.TableDigest != "" }}

// origin is an origin of backends of a service.
type origin struct {
	of *ops.Service
	*ops.Discovered
}

// discoveredFamilies are the families of the services' origins.
var discoveredFamilies = []metric[origin]{
	{family{"jeoul_discovered_backends", "Backends of a service that an origin has found.", gauge,
		[]string{"service", "origin"}},
		always(func(f origin) float64 { return float64(f.Backends) })},
	{family{"jeoul_discovered_failing", "1 where an origin gives no newer set of backends, and the last one is used.",
		gauge, []string{"service", "origin"}},
		always(func(f origin) float64 { return boolValue(f.Problem != "") })},
	{family{"jeoul_discovered_refused", "Backends that an origin names and that cannot be any.", gauge,
		[]string{"service", "origin"}},
		always(func(f origin) float64 { return float64(f.RefusedCount) })},
	{family{"jeoul_discovered_timestamp_seconds", "When an origin gave the set of backends that is used.", gauge,
		[]string{"service", "origin"}},
		func(f origin) (float64, bool) { return float64(f.Taken.UnixMilli()) / 1000, !f.Taken.IsZero() }},
}

func backendsUp(s *ops.Service) (up int) {
	for i := range s.Backends {
		if s.Backends[i].State == lb.Up {
			up++
		}
	}
	return up
}

func backendsHealthy(s *ops.Service) (healthy int) {
	for i := range s.Backends {
		if h := s.Backends[i].Health; h != nil && h.State != lb.Failing {
			healthy++
		}
	}
	return healthy
}

func backendsEjected(s *ops.Service) (ejected int) {
	for i := range s.Backends {
		if s.Backends[i].Ejection != nil {
			ejected++
		}
	}
	return ejected
}

// healths are the results of health checks, by their numbers.
var healths = []lb.Health{lb.Failing, lb.Healthy, lb.HealthUnknown}

// slowest is the time that the slowest of a backend's last checks took.
func slowest(h *ops.Health) (seconds float64) {
	for _, r := range h.Checks {
		seconds = max(seconds, r.TookSeconds)
	}
	return seconds
}

// states are a backend's, by their numbers: one gauge, and not a series for each state.
var states = []lb.BackendState{lb.Up, lb.Draining, lb.WeightZero, lb.NoMAC, lb.NoRoute, lb.Out, lb.Unhealthy,
	lb.Standby, lb.Ejected}

// BackendStates returns the states of a backend, each at the index that is its number in
// jeoul_backend_state.
func BackendStates() []lb.BackendState { return slices.Clone(states) }

func stateNumber(s lb.BackendState) float64 { return float64(slices.Index(states, s)) }

func stateNumbers() string {
	var words []string
	for i, s := range states {
		words = append(words, fmt.Sprintf("%d %s", i, s))
	}
	return strings.Join(words, ", ")
}

// ofHealth is a value of backends that have health checks.
func ofHealth(value func(*ops.Health) float64) func(member) (float64, bool) {
	return func(b member) (float64, bool) {
		if b.Health == nil {
			return 0, false
		}
		return value(b.Health), true
	}
}

var backendFamilies = []metric[member]{
	{family{"jeoul_backend_state", "A backend's state: " + stateNumbers() + ".", gauge, backendLabels},
		always(func(b member) float64 { return stateNumber(b.State) })},
	{family{"jeoul_backend_health", "The result of a backend's health checks: 0 failing, 1 healthy, 2 unknown.", gauge,
		backendLabels},
		ofHealth(func(h *ops.Health) float64 { return float64(slices.Index(healths, h.State)) })},
	{family{"jeoul_backend_check_duration_seconds", "How long the last health check took; of several, the longest.",
		gauge, backendLabels}, ofHealth(slowest)},
	{family{"jeoul_backend_weight", "The weight in force.", gauge, backendLabels},
		always(func(b member) float64 { return float64(b.Weight) })},
	{family{"jeoul_backend_packets_total", "Packets that were sent on to a backend.", counter, backendLabels},
		always(func(b member) float64 { return float64(b.Packets) })},
	{family{"jeoul_backend_bytes_total", "Bytes of those IP packets as they came, without the Ethernet frame.", counter,
		backendLabels},
		always(func(b member) float64 { return float64(b.Bytes) })},
	{family{"jeoul_backend_connections_total",
		"New flows; of a service that does not remember every flow, SYNs that were sent on.", counter, backendLabels},
		always(func(b member) float64 { return float64(b.Connections) })},
	{family{"jeoul_backend_returned_packets_total",
		"Replies that came back through the balancer, in the modes nat and fullnat.", counter, backendLabels},
		always(func(b member) float64 { return float64(b.ReturnedPackets) })},
	{family{"jeoul_backend_returned_bytes_total", "Bytes of those replies' IP packets.", counter, backendLabels},
		always(func(b member) float64 { return float64(b.ReturnedBytes) })},
	{family{"jeoul_backend_answered_total",
		"SYNs that a backend has answered by SYN and ACK, repeated ones included, in the modes nat and fullnat.",
		counter, backendLabels},
		func(b member) (float64, bool) {
			return float64(b.Answered), b.of.Mode.Translates() && b.of.Protocol == lb.TCP
		}},
	{family{"jeoul_backend_refused_total",
		"SYNs that a backend has answered by RST, and ICMP errors “destination unreachable” of its own, in those modes.", counter, backendLabels},
		func(b member) (float64, bool) {
			return float64(b.Refused + b.Unreachable), b.of.Mode.Translates()
		}},
	{family{"jeoul_backend_active_flows", "Flows that have not ended, of a service that remembers every flow.", gauge,
		backendLabels},
		func(b member) (float64, bool) { return float64(b.Active), b.of.Tracked }},
	{family{"jeoul_backend_active_flows_limit", "At how many active flows a backend is full, where upper says so.",
		gauge, backendLabels},
		func(b member) (float64, bool) { return float64(b.Upper), b.Upper > 0 }},
	{family{"jeoul_backend_pool_ports_held",
		"Ports of full NAT's pool that a backend's open flows hold; services with the same endpoint show the sum.",
		gauge, backendLabels},
		func(b member) (float64, bool) {
			if b.Ports == nil {
				return 0, false
			}
			return float64(b.Ports.Held), true
		}},
	{family{"jeoul_backend_pool_ports_limit", "Ports of full NAT's pool that there are for a backend.", gauge,
		backendLabels},
		func(b member) (float64, bool) {
			if b.Ports == nil {
				return 0, false
			}
			return float64(b.Ports.Limit), true
		}},
}

// families lists every metric of the package, in the order of the reference page.
func families() (all []family) {
	all = append(all, only(balancerFamilies)...)
	all = append(all, only(operationFamilies)...)
	all = append(all, reloadsTotal, lastReloadSuccessful, lastReloadSuccess, deniedTotal, packetsTotal.family,
		unwrittenFiles.family)
	all = append(all, only(interfaceFamilies)...)
	all = append(all, flowsNow.family, flowsLimit.family, memoryBytes.family, localSockets.family, localEvents.family)
	all = append(all, only(engineFamilies)...)
	all = append(all, only(proxyFamilies)...)
	all = append(all, responsesTotal.family)
	all = append(all, only(bgpFamilies)...)
	all = append(all, only(peerFamilies)...)
	all = append(all, only(bfdFamilies)...)
	all = append(all, vipAnnounced.family)
	all = append(all, only(vrrpFamilies)...)
	all = append(all, sharedVIPActive.family, membersRefused.family)
	all = append(all, only(memberFamilies)...)
	all = append(all, only(memberFlowFamilies)...)
	all = append(all, only(serviceFamilies)...)
	all = append(all, tableInfo.family)
	all = append(all, only(discoveredFamilies)...)
	all = append(all, backendsWithoutSeries.family)
	return append(append(all, only(backendFamilies)...), only(proxiedFamilies)...)
}

func only[T any](these []metric[T]) (all []family) {
	for _, f := range these {
		all = append(all, f.family)
	}
	return all
}
