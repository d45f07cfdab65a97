// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/jeoul/jeoul/internal/api"
	"github.com/jeoul/jeoul/internal/datapath"
	"github.com/jeoul/jeoul/internal/iface"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/neigh"
	"github.com/jeoul/jeoul/internal/paths"
)

// Status returns the balancer as it is now. It may be called from any
// goroutine, after Start.
func (c *Controller) Status() (api.Status, error) {
	counters, err := c.opt.DataPlane.Counters()
	if err != nil {
		return api.Status{}, fmt.Errorf("read the counters: %w", err)
	}
	attachments, entries := c.opt.DataPlane.Attachments(), c.opt.Paths.Entries()
	c.mu.Lock()
	defer c.mu.Unlock()
	status := api.Status{
		Version:    c.opt.Version,
		PID:        os.Getpid(),
		Started:    c.started,
		Config:     c.cfg.File,
		Interface:  c.links[0].Name,
		Interfaces: interfaceStatus(c.links, attachments),
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
	if counters.FullNATLimit > 0 {
		status.FullNAT = &api.FullNAT{Flows: counters.FullNATFlows, Limit: counters.FullNATLimit}
		if problem := nearlyFull(*status.FullNAT); problem != "" {
			status.Problems = append(status.Problems, problem)
		}
	}
	return status, nil
}

// nearlyFull warns when nine tenths of full NAT's table are taken.
func nearlyFull(n api.FullNAT) string {
	if uint64(n.Flows)*10 < uint64(n.Limit)*9 {
		return ""
	}
	return fmt.Sprintf("full NAT has %d flows of at most %d, and drops new ones when it is full: raise fullnat.flows", n.Flows, n.Limit)
}

func hookOf(a datapath.Attachment) api.Hook {
	return api.Hook{Name: a.Hook, Generic: a.Generic, Driver: a.Driver, Reason: a.Reason}
}

// interfaceStatus puts together what is known of each interface.
func interfaceStatus(links []iface.State, attachments []datapath.Attachment) []api.Interface {
	list := make([]api.Interface, len(links))
	for i, link := range links {
		list[i] = api.Interface{Name: link.Name, Up: link.Up, MAC: link.MAC.String()}
		if i < len(attachments) {
			list[i].Hook = hookOf(attachments[i])
		}
	}
	return list
}

// problems lists what is wrong now; the caller holds the lock.
func (c *Controller) problems() []string {
	list := []string{}
	for _, link := range c.links {
		if !link.Up {
			list = append(list, downMessage(link.Name))
		}
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

func usable(s lb.Service, known map[netip.Addr]paths.Entry) bool {
	for _, b := range s.Backends {
		if stateOfBackend(s, b, known[b.Address]) == api.Up {
			return true
		}
	}
	return false
}

// stateOfBackend judges by what the data plane has.
func stateOfBackend(s lb.Service, b lb.Backend, e paths.Entry) api.State {
	switch {
	case b.Weight == 0:
		return api.WeightZero
	case e.Fault != paths.None || misfit(s, b.Address, e.Route) != "":
		return api.NoRoute
	case e.MAC == nil:
		return api.NoMAC
	}
	return api.Up
}

// serviceStatus joins what the data plane has (applied), what is known now, and
// what was counted.
func serviceStatus(s lb.Service, applied, now map[netip.Addr]paths.Entry, counts map[lb.BackendKey]datapath.BackendCount) api.Service {
	status := api.Service{Name: s.Name, VIP: s.VIP, Port: s.Port, Protocol: s.Protocol, Mode: s.Mode,
		DSCP: s.DSCP, MSS: s.MSS, Scheduler: s.Scheduler}
	for _, b := range s.Backends {
		e, count := applied[b.Address], counts[s.BackendKey(b)]
		status.Backends = append(status.Backends, api.Backend{
			Name: b.Name, Address: b.Address, Port: b.Port, Weight: b.Weight,
			State:     stateOfBackend(s, b, e),
			Neighbour: neighbourState(now[b.Address]),
			Reason:    reason(s, now[b.Address]),
			Interface: e.Interface, NextHop: nextHop(e), MAC: e.MAC.String(), MTU: e.MTU,
			Packets: count.Packets, Bytes: count.Bytes, Connections: count.Connections,
			ReturnedPackets: count.ReturnedPackets, ReturnedBytes: count.ReturnedBytes,
		})
	}
	return status
}

// nextHop returns the router or the backend itself; invalid without a route.
func nextHop(e paths.Entry) netip.Addr {
	if e.Interface == "" {
		return netip.Addr{}
	}
	return e.NextHop()
}

func neighbourState(e paths.Entry) string {
	if e.Neighbour == "" {
		return neigh.Unknown
	}
	return e.Neighbour
}
