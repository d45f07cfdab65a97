// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
)

// NetStat returns counters of the host's network stack since the lab was built,
// by the names that nstat(8) uses: "TcpExtListenDrops", "TcpPassiveOpens". With
// no name it returns all. A name that the kernel does not have is an error.
func (h *Host) NetStat(names ...string) (map[string]uint64, error) {
	if h.machine != nil {
		return briefly(netStatTask, h, names)
	}
	return h.netStat(names...)
}

func (h *Host) netStat(names ...string) (map[string]uint64, error) {
	all := map[string]uint64{}
	err := h.Do(func() error {
		for _, file := range []string{"snmp", "netstat"} {
			b, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				return err
			}
			if err := parseNetStat(string(b), all); err != nil {
				return fmt.Errorf("/proc/net/%s: %w", file, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the network counters of %s: %w", h.Name, err)
	}
	if len(names) == 0 {
		return all, nil
	}
	chosen := map[string]uint64{}
	for _, name := range names {
		value, ok := all[name]
		if !ok {
			return nil, fmt.Errorf("read the network counters of %s: this kernel has no %s", h.Name, name)
		}
		chosen[name] = value
	}
	return chosen, nil
}

// parseNetStat reads pairs of lines, "Tcp: Name Name" and "Tcp: 1 2", into
// counters. Values that are no counters (MaxConn is -1) are left out.
func parseNetStat(text string, counters map[string]uint64) error {
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
	// HostReceive and HostTransmit are of the host's device.
	HostReceive, HostTransmit uint64
	// PortReceive and PortTransmit are of the switch's port.
	PortReceive, PortTransmit uint64
}

// Total is the number of frames lost on the link. The kernel counts some at one
// end and some, such as those of XDP_TX, at both: in each direction the larger
// figure holds.
func (d Drops) Total() uint64 {
	return max(d.HostTransmit, d.PortReceive) + max(d.PortTransmit, d.HostReceive)
}

// Sub returns what was dropped since an earlier reading.
func (d Drops) Sub(earlier Drops) Drops {
	return Drops{
		HostReceive:  d.HostReceive - earlier.HostReceive,
		HostTransmit: d.HostTransmit - earlier.HostTransmit,
		PortReceive:  d.PortReceive - earlier.PortReceive,
		PortTransmit: d.PortTransmit - earlier.PortTransmit,
	}
}

// DeviceDrops reads the drops of the host's link. A veth counts a frame that
// finds its peer's ring full as dropped in transmission; what a full queueing
// discipline drops is counted with it.
func (h *Host) DeviceDrops() (Drops, error) {
	var d Drops
	if h.machine != nil {
		read, err := briefly(deviceTask, h, nothing{})
		return read.Drops, err
	}
	if h.Interface == "" {
		return d, nil
	}
	err := errors.Join(
		h.Do(func() (err error) {
			d.HostReceive, d.HostTransmit, err = netdev.Drops(h.Interface)
			return err
		}),
		h.portOn.Do(func() (err error) {
			d.PortReceive, d.PortTransmit, err = netdev.Drops(h.Port)
			return err
		}),
	)
	if err != nil {
		return Drops{}, fmt.Errorf("read the drops of %s: %w", h.Name, err)
	}
	return d, nil
}
