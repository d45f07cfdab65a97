// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// Traffic is what a host's device has received and sent since it was made.
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

// Traffic reads the devices of all hosts, by their names, at the switch's ports:
// in one call to the kernel, so that a person can watch without disturbing. Of
// machines it reads the balancer's and the clients' own.
func (l *Lab) Traffic() (map[string]Traffic, error) {
	if l.far != nil {
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
				// What a port sends, its host receives.
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
