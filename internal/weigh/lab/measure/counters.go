// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseNetStat reads pairs of lines, "Tcp: Name Name" and "Tcp: 1 2", into counters. Values that are not counters
// (MaxConn is -1) are left out.
func ParseNetStat(text string, counters map[string]uint64) error {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines)%2 != 0 {
		return errors.New("a line of names without its line of values")
	}
	for i := 0; i < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		if len(names) == 0 || len(names) != len(values) || names[0] != values[0] {
			return fmt.Errorf("lines %d and %d do not belong together", i+1, i+2)
		}
		prefix := strings.TrimSuffix(names[0], ":")
		for j := 1; j < len(names); j++ {
			if n, err := strconv.ParseUint(values[j], 10, 64); err == nil {
				counters[prefix+names[j]] = n
			}
		}
	}
	return nil
}

// Drops are the frames that the two ends of a host's link dropped since the lab
// was built.
type Drops struct {
	// HostReceive and HostTransmit are the drops of the host's device.
	HostReceive, HostTransmit uint64
	// PortReceive and PortTransmit are the drops of the switch's port.
	PortReceive, PortTransmit uint64
}

// Total is the number of frames lost on the link. The kernel counts some at one end and some, such as those of XDP_TX,
// at both: so the larger figure counts in each direction.
func (d Drops) Total() uint64 {
	return max(d.HostTransmit, d.PortReceive) + max(d.PortTransmit, d.HostReceive)
}

// Sub returns the frames that were dropped since an earlier reading.
func (d Drops) Sub(earlier Drops) Drops {
	return Drops{
		HostReceive:  d.HostReceive - earlier.HostReceive,
		HostTransmit: d.HostTransmit - earlier.HostTransmit,
		PortReceive:  d.PortReceive - earlier.PortReceive,
		PortTransmit: d.PortTransmit - earlier.PortTransmit,
	}
}

// Traffic counts the frames and bytes that a host's device has received and sent since it was made.
type Traffic struct {
	ReceivedFrames, SentFrames uint64
	ReceivedBytes, SentBytes   uint64
}

// Add returns the sum of two hosts' traffic.
func (t Traffic) Add(other Traffic) Traffic {
	return Traffic{
		ReceivedFrames: t.ReceivedFrames + other.ReceivedFrames, SentFrames: t.SentFrames + other.SentFrames,
		ReceivedBytes: t.ReceivedBytes + other.ReceivedBytes, SentBytes: t.SentBytes + other.SentBytes,
	}
}
