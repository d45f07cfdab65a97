// SPDX-License-Identifier: Apache-2.0

package results

// The metrics of the DNS experiment, besides latencies, CPU by part and failed:
// answers with an error; the main one is QueriesPerSecond. What is per request is per query there.
const (
	Queries = "queries"
	// Lost are queries that were not answered in time.
	Lost        = "lost"
	LostPercent = "lost_percent"
	// NameServerCPUPercent is what the name servers' processes used, the mean of
	// those that were asked, in per cent of one core.
	NameServerCPUPercent = "name_server_cpu_percent"
	// RelayCPUPercent is that of a balancer's relays, the mean of those that carried
	// anything, where it has a process for each server.
	RelayCPUPercent = "relay_cpu_percent"
	// What the whole machine did, in per cent of all its cores.
	HostUserPercent    = "host_user_percent"
	HostSystemPercent  = "host_system_percent"
	HostSoftirqPercent = "host_softirq_percent"
	HostIdlePercent    = "host_idle_percent"
	// DatagramDrops are datagrams that found a full socket on balancer or servers.
	DatagramDrops = "datagram_drops"
)
