// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/weigh/lab/measure"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
)

// NetStat returns counters of the host's network stack since the lab was built, by the names that nstat(8) uses:
// "TcpExtListenDrops", "TcpPassiveOpens". Without a name it returns all. A name that the kernel does not have is an
// error.
func (h *Host) NetStat(names ...string) (map[string]uint64, error) {
	if h.machine != nil {
		return runTask(netStatTask, h, names)
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
			if err := measure.ParseNetStat(string(b), all); err != nil {
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

// DeviceDrops reads the drops of the host's link. A veth counts a frame as dropped in transmission if the ring of its
// peer is full; the drops of a full queueing discipline are counted with it.
func (h *Host) DeviceDrops() (Drops, error) {
	var d Drops
	if h.machine != nil {
		read, err := runTask(deviceTask, h, nothing{})
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

// Traffic reads the devices of all hosts, by the hosts' names, at the switch's ports: in one call to the kernel, so
// that a person can watch without disturbing the load. Of machines it reads the devices of the balancer and the
// clients.
func (l *Lab) Traffic() (map[string]Traffic, error) {
	if l.remote != nil {
		read, err := collect(append([]*Host{l.Balancer}, l.Clients...), deviceTask, func(*Host) nothing {
			return nothing{}
		})
		all := map[string]Traffic{}
		for name, d := range read {
			all[name] = d.Traffic
		}
		return all, err
	}
	byPort := map[string]string{}
	for _, h := range l.Hosts() {
		byPort[h.Port] = h.Name
	}
	all := map[string]Traffic{}
	err := l.Switch.Do(func() error {
		links, err := netdump.Links()
		if err != nil {
			return err
		}
		for _, link := range links {
			at := link.Attrs()
			if name := byPort[at.Name]; name != "" && at.Statistics != nil {
				// A host receives what its port sends.
				s := at.Statistics
				all[name] = Traffic{ReceivedFrames: s.TxPackets, ReceivedBytes: s.TxBytes, SentFrames: s.RxPackets,
					SentBytes: s.RxBytes}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the hosts' traffic: %w", err)
	}
	return all, nil
}

// device holds the counters of a host's device.
type device struct {
	Drops   Drops
	Traffic Traffic
}

var (
	netStatTask = NewTask("net-stat", func(_ context.Context, h *Host, names []string) (map[string]uint64, error) {
		return h.netStat(names...)
	})
	deviceTask = NewTask("device", func(_ context.Context, h *Host, _ nothing) (device, error) {
		var d device
		err := h.Do(func() error {
			s, err := netdev.Statistics(h.Interface)
			if err != nil {
				return err
			}
			d.Drops = Drops{HostReceive: s.RxDropped, HostTransmit: s.TxDropped}
			d.Traffic = Traffic{ReceivedFrames: s.RxPackets, ReceivedBytes: s.RxBytes, SentFrames: s.TxPackets,
				SentBytes: s.TxBytes}
			return nil
		})
		return d, err
	})
)
