// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/enum"
)

// Count is the number of packets with an outcome.
type Count struct {
	// Mode is the packets' mode: "" for packets that show no sign of a mode that the program undoes.
	Mode lb.Mode
	// Outcome is the packets' outcome, and Help explains it. Each packet is in exactly one Count.
	Outcome, Help string
	// Packets as on the wire: the segments of a GSO packet count one each.
	Packets uint64
}

// outcomeHelp explains each outcome to the operator.
var outcomeHelp = [tcAgentOutcomeAGENT_OUTCOME_COUNT]string{
	tcAgentOutcomeAGENT_ACCEPTED:                 "undone: on to this host's stack as a packet for a VIP",
	tcAgentOutcomeAGENT_CLAMPED:                  "to a client: a SYN whose MSS was made smaller",
	tcAgentOutcomeAGENT_PASSED_OTHER_HOST:        "left alone: the frame was for another MAC address, or for a group",
	tcAgentOutcomeAGENT_PASSED_NOT_IP:            "left to the kernel: neither IPv4 nor IPv6 (ARP, a second VLAN tag, …)",
	tcAgentOutcomeAGENT_PASSED_PLAIN:             "left to the kernel: there was nothing to undo",
	tcAgentOutcomeAGENT_PASSED_NOT_LOCAL:         "left to the kernel: the tunnel ends at an address that is not this host's",
	tcAgentOutcomeAGENT_PASSED_NOT_VIP:           "left to the kernel: what is in the tunnel is for no VIP",
	tcAgentOutcomeAGENT_PASSED_FRAGMENT:          "left to the kernel: a fragment of a tunnel's packet",
	tcAgentOutcomeAGENT_PASSED_EXTENSION_HEADERS: "left to the kernel: more IPv6 extension headers than are walked, or a route that has not ended",
	tcAgentOutcomeAGENT_PASSED_OTHER_GUE:         "left to the kernel: to port 6080, but not variant 1 of GUE",
	tcAgentOutcomeAGENT_PASSED_MALFORMED:         "left to the kernel: headers are cut short or contradict each other",
	tcAgentOutcomeAGENT_DROPPED_MALFORMED:        "dropped: for a VIP, but its headers contradict the packet",
	tcAgentOutcomeAGENT_DROPPED_CONGESTED:        "dropped: a congestion mark that the packet inside cannot bear (RFC 6040)",
	tcAgentOutcomeAGENT_DROPPED_AGGREGATE:        "dropped: the network card has merged tunnels' packets (ethtool -K DEV rx-udp-gro-forwarding off)",
	tcAgentOutcomeAGENT_DROPPED_NO_ROOM:          "dropped: the kernel refused the change",
}

// outcomeNames reads the names from the program's BTF, so that they are defined in one place.
var outcomeNames = sync.OnceValues(func() ([]string, error) {
	spec, err := loadTc()
	if err != nil {
		return nil, fmt.Errorf("read the embedded eBPF program: %w", err)
	}
	return enum.Names(spec, "agent_outcome", "AGENT_", int(tcAgentOutcomeAGENT_OUTCOME_COUNT))
})

// countedModes has the modes in the order of enum agent_mode.
var countedModes = [tcAgentModeAGENT_MODE_COUNT]lb.Mode{
	tcAgentModeAGENT_MODE_IPIP: lb.IPIP,
	tcAgentModeAGENT_MODE_GUE:  lb.GUE,
	tcAgentModeAGENT_MODE_DSCP: lb.DSCP,
}

// readCounts returns all counters, including zero ones.
func readCounts(m *ebpf.Map) ([]Count, error) {
	names, err := outcomeNames()
	if err != nil {
		return nil, err
	}
	var counts []Count
	for mode, name := range countedModes {
		for outcome, help := range outcomeHelp {
			var perCPU []uint64
			if err := m.Lookup(uint32(mode*len(outcomeHelp)+outcome), &perCPU); err != nil {
				return nil, fmt.Errorf("read the counter %s: %w", names[outcome], err)
			}
			count := Count{Mode: name, Outcome: names[outcome], Help: help}
			for _, n := range perCPU {
				count.Packets += n
			}
			counts = append(counts, count)
		}
	}
	return counts, nil
}
