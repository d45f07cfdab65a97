// SPDX-License-Identifier: Apache-2.0

package results

// The metrics of the DNS experiment, besides latencies, CPU by part and failed, which counts answers with an error. The
// main metric is QueriesPerSecond. Metrics per request are per query there.
const (
	Queries = "queries"
	// Lost is the number of queries that were not answered in time.
	Lost        = "lost"
	LostPercent = "lost_percent"
	// NameServerCPUPercent is the CPU use of the name servers' processes, the mean of those that received queries, in
	// per cent of one core.
	NameServerCPUPercent = "name_server_cpu_percent"
	// RelayCPUPercent is the CPU use of a balancer's relays, the mean of those that carried anything, where it has a
	// process for each server.
	RelayCPUPercent = "relay_cpu_percent"
	// HostUserPercent and those below it are the CPU use of the whole machine, in per cent of all its cores.
	HostUserPercent    = "host_user_percent"
	HostSystemPercent  = "host_system_percent"
	HostSoftirqPercent = "host_softirq_percent"
	HostIdlePercent    = "host_idle_percent"
	// DatagramDrops is the number of datagrams that were dropped at a full socket on balancer or servers.
	DatagramDrops = "datagram_drops"
)
