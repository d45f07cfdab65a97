// SPDX-License-Identifier: Apache-2.0

package sharedmaps

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/enum"
)

// OutcomeHelp is the description of each outcome's counter.
var OutcomeHelp = map[objects.XDPOutcome]string{
	objects.XDPOutcomeOUTCOME_FORWARDED: "sent on to a backend",
	objects.XDPOutcomeOUTCOME_RETURNED:  "a backend's reply, sent on to its client",
	objects.XDPOutcomeOUTCOME_ANSWERED_TOO_BIG: "answered: the sender was told that the packet is too big for the " +
		"way",
	objects.XDPOutcomeOUTCOME_ANSWERED_TIME_EXCEEDED: "answered: the sender was told that its packet has no hops " +
		"left (TTL, hop limit)",
	objects.XDPOutcomeOUTCOME_RESET_NO_BACKEND: "answered by a TCP reset: no backend of the service can take " +
		"packets",
	objects.XDPOutcomeOUTCOME_RESET_BACKEND_DOWN: "answered by a TCP reset: the flow's backend has no known MAC " +
		"address, or is unhealthy",
	objects.XDPOutcomeOUTCOME_RESET_NO_FLOW: "answered by a TCP reset: full NAT knows no flow that it belongs to",
	objects.XDPOutcomeOUTCOME_RESET_NO_PORT: "answered by a TCP reset: full NAT has no free port for a new flow to " +
		"this backend; give it more addresses",
	objects.XDPOutcomeOUTCOME_RESET_NO_ADDRESS: "answered by a TCP reset: the backend would answer this client " +
		"directly, and this host has no address that the backend could answer instead",
	objects.XDPOutcomeOUTCOME_RESET_FLOW_TABLE_FULL: "answered by a TCP reset: a new flow that must be remembered " +
		"(by full NAT, or for a limit), and there is no room: raise flows.limit or flows.unproven",
	objects.XDPOutcomeOUTCOME_RESET_RATE_LIMIT: "answered by a TCP reset: the service takes no more new connections " +
		"in a second",
	objects.XDPOutcomeOUTCOME_RESET_CONNECTION_LIMIT: "answered by a TCP reset: the service, or all of its " +
		"backends, have as many connections as they may",
	objects.XDPOutcomeOUTCOME_UNREACHABLE_NO_BACKEND: "answered by ICMP \"port unreachable\": no backend of the " +
		"service can take packets",
	objects.XDPOutcomeOUTCOME_UNREACHABLE_BACKEND_DOWN: "answered by ICMP \"port unreachable\": the flow's backend " +
		"has no known MAC address",
	objects.XDPOutcomeOUTCOME_UNREACHABLE_NO_FLOW: "answered by ICMP \"port unreachable\": full NAT knows no flow " +
		"that it belongs to",
	objects.XDPOutcomeOUTCOME_UNREACHABLE_NO_PORT: "answered by ICMP \"port unreachable\": full NAT has no free " +
		"port for a new flow to this backend; give it more addresses",
	objects.XDPOutcomeOUTCOME_UNREACHABLE_NO_ADDRESS: "answered by ICMP \"port unreachable\": the backend would " +
		"answer this client directly, and this host has no address that the backend could answer instead",
	objects.XDPOutcomeOUTCOME_UNREACHABLE_FLOW_TABLE_FULL: "answered by ICMP \"port unreachable\": a new flow that " +
		"must be remembered (by full NAT, or for a limit), and there is no room: raise flows.limit or " +
		"flows.unproven",
	objects.XDPOutcomeOUTCOME_UNREACHABLE_RATE_LIMIT: "answered by ICMP \"port unreachable\": the service takes no " +
		"more new connections in a second",
	objects.XDPOutcomeOUTCOME_UNREACHABLE_CONNECTION_LIMIT: "answered by ICMP \"port unreachable\": the service, or " +
		"all of its backends, have as many connections as they may",
	objects.XDPOutcomeOUTCOME_PASSED_OTHER_HOST: "left alone: the frame was for another host's MAC address, or for " +
		"a group",
	objects.XDPOutcomeOUTCOME_PASSED_NOT_IP: "left to the kernel: neither IPv4 nor IPv6 (ARP, …)",
	objects.XDPOutcomeOUTCOME_PASSED_NO_SERVICE: "left to the kernel: no service has this address, port and " +
		"protocol",
	objects.XDPOutcomeOUTCOME_PASSED_NOT_FORWARDED: "left to the kernel, not translated: from a backend's port, and " +
		"to this host itself or to where no route leads",
	objects.XDPOutcomeOUTCOME_PASSED_UNTRANSLATED: "left to the kernel, not translated: from a backend's port, and " +
		"to a destination that its service has under untranslated",
	objects.XDPOutcomeOUTCOME_PASSED_NO_FLOW: "left to the kernel, not translated: from a backend's port, and part " +
		"of no flow of its service, which remembers them",
	objects.XDPOutcomeOUTCOME_PASSED_ORPHANED: "left to the kernel, as without a balancer: the daemon has been away " +
		"for longer than orphan; start it",
	objects.XDPOutcomeOUTCOME_PASSED_BACKUP: "left to the kernel: another balancer holds the VIPs, and its sender " +
		"has this one's MAC address; see jeoul doctor",
	objects.XDPOutcomeOUTCOME_PASSED_TO_ROUTE: "a backend's reply, rewritten and left to the kernel to route: its " +
		"next hop is not known yet",
	objects.XDPOutcomeOUTCOME_DROPPED_MALFORMED: "dropped: the headers contradict the packet",
	objects.XDPOutcomeOUTCOME_DROPPED_FRAGMENT: "dropped: a fragment whose first one, which bears the port, was not " +
		"seen",
	objects.XDPOutcomeOUTCOME_DROPPED_EXTENSION_HEADERS: "dropped: a packet for a VIP with more IPv6 extension " +
		"headers than are walked",
	objects.XDPOutcomeOUTCOME_DROPPED_NO_BACKEND: "dropped: no backend of the service can take packets",
	objects.XDPOutcomeOUTCOME_DROPPED_BACKEND_DOWN: "dropped: the flow's backend has no known MAC address, or is " +
		"unhealthy",
	objects.XDPOutcomeOUTCOME_DROPPED_TOO_BIG: "dropped: too big for the way to the backend, and the sender could " +
		"not be told (too many were)",
	objects.XDPOutcomeOUTCOME_DROPPED_TIME_EXCEEDED: "dropped: no hops left (TTL, hop limit), and the sender could " +
		"not be told (too many were); many of them are a loop",
	objects.XDPOutcomeOUTCOME_DROPPED_NO_FLOW: "dropped: full NAT knows no flow that it belongs to",
	objects.XDPOutcomeOUTCOME_DROPPED_NO_PORT: "dropped: full NAT has no free port for a new flow to this backend; " +
		"give it more addresses",
	objects.XDPOutcomeOUTCOME_DROPPED_NO_ADDRESS: "dropped: the backend would answer this client directly, and this " +
		"host has no address that the backend could answer instead",
	objects.XDPOutcomeOUTCOME_DROPPED_FLOW_TABLE_FULL: "dropped: a new flow that must be remembered (by full NAT, " +
		"or for a limit), and there is no room: raise flows.limit or flows.unproven",
	objects.XDPOutcomeOUTCOME_DROPPED_NO_ROUTE: "dropped: a backend's reply, and no route leads to its client",
	objects.XDPOutcomeOUTCOME_DROPPED_NO_ROOM: "dropped: the driver leaves no room before the packet for a tunnel's " +
		"header",
	objects.XDPOutcomeOUTCOME_DROPPED_FLOWS_MOVING: "dropped: of a flow that is not known yet, while flows move " +
		"into other tables for an upgrade or a change; its sender sends it again",
	objects.XDPOutcomeOUTCOME_DROPPED_DENIED: "dropped: from a client that the service's allow and deny lists do " +
		"not let in",
	objects.XDPOutcomeOUTCOME_DROPPED_RATE_LIMIT: "dropped: the service takes no more new connections in a second",
	objects.XDPOutcomeOUTCOME_DROPPED_CONNECTION_LIMIT: "dropped: the service, or all of its backends, have as many " +
		"connections as they may",
}

// OutcomeNames returns the names of the outcomes, from the program's own type information.
var OutcomeNames = sync.OnceValues(func() ([]string, error) {
	spec, err := objects.XDP.Spec()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	return enum.Names(spec, "outcome", "OUTCOME_", int(objects.XDPOutcomeOUTCOME_COUNT))
})

// ReadOutcomes reads the counters of outcomes.
func ReadOutcomes(m *ebpf.Map) ([]lb.OutcomeCount, error) {
	names, err := OutcomeNames()
	if err != nil {
		return nil, err
	}
	counts := make([]lb.OutcomeCount, len(names))
	for i, name := range names {
		var perCPU []uint64
		if err := m.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("reading the counter %s: %v", name, err)
		}
		counts[i] = lb.OutcomeCount{Name: name, Help: OutcomeHelp[objects.XDPOutcome(i)]}
		for _, n := range perCPU {
			counts[i].Packets += n
		}
	}
	return counts, nil
}

// readBatch is how many backends' counters one system call reads: there may be 100,000 of them.
const readBatch = 2048

// ReadBackends reads the counters of the first n indices.
func ReadBackends(m *ebpf.Map, n int) ([]lb.BackendCount, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("counting the CPUs: %v", err)
	}
	counts := make([]lb.BackendCount, n)
	size := min(readBatch, n)
	keys, values := make([]uint32, size), make([]objects.XDPBackendCount, size*cpus)
	var cursor ebpf.MapBatchCursor
	for read := 0; read < n; {
		batch, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) || batch == 0 {
			return nil, fmt.Errorf("reading the counters of backends from index %d on: %v", read, err)
		}
		for i, index := range keys[:batch] {
			if int(index) < n {
				counts[index] = sumOf(values[i*cpus:][:cpus])
			}
		}
		read += batch
	}
	return counts, nil
}

// ReadBackend reads the counters of one index.
func ReadBackend(m *ebpf.Map, index uint32) (lb.BackendCount, error) {
	var perCPU []objects.XDPBackendCount
	if err := m.Lookup(index, &perCPU); err != nil {
		return lb.BackendCount{}, fmt.Errorf("reading the counters of backend index %d: %v", index, err)
	}
	return sumOf(perCPU), nil
}

// sumOf adds up the counts of all CPUs.
func sumOf(perCPU []objects.XDPBackendCount) (sum lb.BackendCount) {
	for _, c := range perCPU {
		sum = sum.Plus(lb.BackendCount{Packets: c.Packets, Bytes: c.Bytes, Connections: c.Connections,
			ReturnedPackets: c.ReturnedPackets, ReturnedBytes: c.ReturnedBytes,
			Answered: c.Answered, Refused: c.Refused, Unreachable: c.Unreachable})
	}
	return sum
}
