// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/jeoul/jeoul/internal/api"
	"github.com/jeoul/jeoul/internal/datapath"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/neigh"
)

// Status returns the balancer as it is now. It may be called from any
// goroutine, after Start.
func (c *Controller) Status() (api.Status, error) {
	counters, err := c.opt.DataPlane.Counters()
	if err != nil {
		return api.Status{}, fmt.Errorf("read the counters: %w", err)
	}
	attachments, entries := c.opt.DataPlane.Attachments(), c.opt.Neighbours.Entries()
	c.mu.Lock()
	defer c.mu.Unlock()
	status := api.Status{
		Version:    c.opt.Version,
		PID:        os.Getpid(),
		Started:    c.started,
		Config:     c.cfg.File,
		Interface:  c.link.Name,
		Hook:       hookOf(attachments[0]), // one way for all interfaces
		TableSize:  c.cfg.TableSize,
		Generation: c.generation,
		Problems:   c.problems(),
		Services:   []api.Service{},
		Outcomes:   []api.Outcome{},
	}
	for _, s := range c.cfg.Services {
		status.Services = append(status.Services, serviceStatus(s, c.applied, entries, counters.Backends))
	}
	for _, o := range counters.Outcomes {
		status.Outcomes = append(status.Outcomes, api.Outcome{Name: o.Name, Packets: o.Packets, Help: o.Help})
	}
	return status, nil
}

func hookOf(a datapath.Attachment) api.Hook {
	return api.Hook{Name: a.Hook, Generic: a.Generic, Driver: a.Driver, Reason: a.Reason}
}

// problems lists what is wrong now; the caller holds the lock.
func (c *Controller) problems() []string {
	list := []string{}
	if !c.link.Up {
		list = append(list, downMessage(c.link.Name))
	}
	if c.failed != nil {
		list = append(list, oneLine(c.failed))
	}
	if c.refused != nil {
		list = append(list, fmt.Sprintf("the reload of %s was refused, and nothing of it applied: %s",
			c.refusedAt.Format(time.DateTime), oneLine(c.refused)))
	}
	for _, s := range c.cfg.Services {
		if !usable(s, c.applied) {
			list = append(list, fmt.Sprintf("service %s has no backend that can take packets: all to it are dropped", s.Name))
		}
	}
	return list
}

func usable(s lb.Service, known map[netip.Addr]string) bool {
	for _, b := range s.Backends {
		if stateOfBackend(b, known) == api.Up {
			return true
		}
	}
	return false
}

func stateOfBackend(b lb.Backend, known map[netip.Addr]string) api.State {
	switch {
	case b.Weight == 0:
		return api.WeightZero
	case known[b.Address] == "":
		return api.NoMAC
	}
	return api.Up
}

func serviceStatus(s lb.Service, known map[netip.Addr]string, entries map[netip.Addr]neigh.Entry,
	counts map[lb.BackendKey]datapath.BackendCount) api.Service {
	status := api.Service{Name: s.Name, VIP: s.VIP, Port: s.Port, Protocol: s.Protocol, Mode: s.Mode, Scheduler: s.Scheduler}
	for _, b := range s.Backends {
		count := counts[s.BackendKey(b)]
		status.Backends = append(status.Backends, api.Backend{
			Name: b.Name, Address: b.Address, Port: b.Port, Weight: b.Weight,
			State:     stateOfBackend(b, known),
			Neighbour: neighbourState(entries[b.Address]),
			Reason:    entries[b.Address].Reason,
			MAC:       net.HardwareAddr(known[b.Address]).String(),
			Packets:   count.Packets, Bytes: count.Bytes, Connections: count.Connections,
		})
	}
	return status
}

func neighbourState(e neigh.Entry) string {
	if e.State == "" {
		return neigh.Unknown
	}
	return e.State
}
