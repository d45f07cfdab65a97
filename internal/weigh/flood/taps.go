// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"fmt"
	"net"

	"github.com/cilium/ebpf"
)

// Taps are the programs that count a flood on its path, each in native XDP. The caller that attaches one detaches it
// again.
type Taps struct {
	// Port is for the switch's port to the attacker. It sends frames to the port that Connect has set for their MAC
	// address, or drops them.
	Port *ebpf.Program
	// Exit is for the switch's port to the balancer. It counts the packets that the balancer sends on and its answers,
	// and lets them pass or drops them.
	Exit *ebpf.Program
	// Sink is for the attacker's own device, and drops the answers.
	Sink *ebpf.Program
}

// Taps returns the programs, which exist as long as the flood.
func (f *Flood) Taps() Taps {
	return Taps{Port: f.objects.FloodPort, Exit: f.objects.FloodExit, Sink: f.objects.FloodSink}
}

// Connect configures the tap at the attacker's port with the device, by its index, for a MAC address.
func (f *Flood) Connect(mac net.HardwareAddr, index int) error {
	if err := f.objects.Ports.Put(macKey(mac), uint32(index)); err != nil {
		return fmt.Errorf("connecting a flood with %v: %w", mac, err)
	}
	return nil
}

// Counts are the counters of the taps, in packets.
type Counts struct {
	// Offered is the number of packets from the attacker into the switch.
	Offered uint64
	// Forwarded is the number of SYNs and datagrams that the balancer has sent on, ForwardedACKs that of the ACKs after
	// them.
	Forwarded, ForwardedACKs uint64
	// Answered counts the packets that left the balancer for the flood's sources, Returned those of them, or of others'
	// answers, that came back to the attacker.
	Answered, Returned Answers
}

// Answers are replies to a flood.
type Answers struct{ SYNACKs, Resets, Others uint64 }

// Counts returns the present values of the counters.
func (f *Flood) Counts() (Counts, error) {
	var all [floodCountedCOUNTED_KINDS]uint64
	for kind := range all {
		var perCPU []uint64
		if err := f.objects.Counts.Lookup(uint32(kind), &perCPU); err != nil {
			return Counts{}, fmt.Errorf("reading what a flood's taps have counted: %w", err)
		}
		for _, n := range perCPU {
			all[kind] += n
		}
	}
	return Counts{
		Offered:       all[floodCountedCOUNTED_OFFERED],
		Forwarded:     all[floodCountedCOUNTED_FORWARDED],
		ForwardedACKs: all[floodCountedCOUNTED_FORWARDED_ACK],
		Answered: Answers{
			SYNACKs: all[floodCountedCOUNTED_ANSWERED_SYNACK],
			Resets:  all[floodCountedCOUNTED_ANSWERED_RST],
			Others:  all[floodCountedCOUNTED_ANSWERED_OTHER],
		},
		Returned: Answers{
			SYNACKs: all[floodCountedCOUNTED_RETURNED_SYNACK],
			Resets:  all[floodCountedCOUNTED_RETURNED_RST],
			Others:  all[floodCountedCOUNTED_RETURNED_OTHER],
		},
	}, nil
}
