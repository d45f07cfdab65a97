// SPDX-License-Identifier: Apache-2.0

package top

import (
	"net/netip"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// serviceRow is a service now.
type serviceRow struct {
	Name       string  `json:"service"`
	Address    string  `json:"address"`
	Mode       lb.Mode `json:"mode"`
	BackendsUp int     `json:"backends_up"`
	Backends   int     `json:"backends"`
	// Active are flows that have not ended, where Tracked.
	Active  uint32 `json:"active"`
	Tracked bool   `json:"tracked"`
	// Connections are all since the counters began.
	Connections uint64      `json:"connections"`
	Serving     ops.Serving `json:"serving"`
	rates
	trend []float64
}

// backendRow is a backend now.
type backendRow struct {
	Service     string          `json:"service"`
	Name        string          `json:"backend"`
	Address     string          `json:"address"`
	State       lb.BackendState `json:"state"`
	Reason      string          `json:"reason,omitempty"`
	Weight      uint16          `json:"weight"`
	Active      uint32          `json:"active"`
	Connections uint64          `json:"connections"`
	// Share is its share of its service's new connections now, and Due the share by its weight, from 0 to 1.
	Share float64 `json:"share"`
	Due   float64 `json:"due"`
	rates
	trend   []float64
	service *ops.Service
	backend *ops.Backend
}

// dropRow is a kind of packets that went to no backend, or were lost on the way.
type dropRow struct {
	Name    string  `json:"outcome"`
	Packets uint64  `json:"packets"`
	Rate    float64 `json:"packets_per_second"`
	Meaning string  `json:"meaning"`
	trend   []float64
}

// snapshotFigures are everything that the views show, of one reading.
type snapshotFigures struct {
	status    *ops.Status
	services  []serviceRow
	backends  []backendRow
	drops     []dropRow
	balancers []balancerRow
	limits    []limitRow
	total     rates
	dropped   float64
}

// newFigures reads a status, which the history has as its latest, and which came at a moment.
func newFigures(s *ops.Status, h *history, at time.Time) snapshotFigures {
	f := snapshotFigures{status: s, services: make([]serviceRow, 0, len(s.Services))}
	for i := range s.Services {
		f.addService(&s.Services[i], h)
	}
	for _, o := range s.Outcomes {
		if isDelivered(o.Name) {
			continue
		}
		rate := h.rate(outcomeID(o.Name)).Packets
		f.dropped += rate
		f.drops = append(f.drops, dropRow{o.Name, o.Packets, rate, o.Help, h.trend(outcomeID(o.Name), rate)})
	}
	for _, nic := range s.Interfaces {
		if nic.Hook.Name != lb.HookXDP {
			continue
		}
		rate := h.rate(lostID(nic.Name)).Packets
		f.dropped += rate
		f.drops = append(f.drops, dropRow{"lost_by_driver " + nic.Name, nic.XDPLost, rate,
			"counted as forwarded, and lost by the driver after XDP", h.trend(lostID(nic.Name), rate)})
	}
	f.balancers = balancerRows(s, s.Taken(at))
	f.limits = limitRows(s, &f)
	h.prune()
	return f
}

// isDelivered reports whether an outcome is a packet's way to a backend, to a client, or to this host's own programs.
func isDelivered(outcome string) bool {
	return outcome == "forwarded" || outcome == "returned" || strings.HasPrefix(outcome, "passed_")
}

// addService adds the rows of a service and its backends.
func (f *snapshotFigures) addService(s *ops.Service, h *history) {
	row := serviceRow{
		Name:     s.Name,
		Address:  lb.ServiceKey{VIP: s.VIP, Port: s.Port, Protocol: s.Protocol}.String(),
		Mode:     s.Mode,
		Backends: len(s.Backends),
		Active:   s.Active,
		Tracked:  s.Tracked,
		Serving:  s.Serving,
	}
	first, weights := len(f.backends), 0.0
	for i := range s.Backends {
		b := &s.Backends[i]
		rates := h.rate(backendID(s.Name, b.Name))
		f.backends = append(f.backends, backendRow{Service: s.Name, Name: b.Name, Address: endpointText(s, b),
			State:  b.State,
			Reason: b.Reason, Weight: b.Weight, Active: b.Active, Connections: b.Connections, rates: rates,
			Due: dueWeight(b), trend: h.trend(backendID(s.Name, b.Name), rates.Connections), service: s, backend: b})
		row.rates = row.add(rates)
		row.Connections += b.Connections
		weights += dueWeight(b)
		if b.State == lb.Up {
			row.BackendsUp++
		}
	}
	for i := range f.backends[first:] {
		b := &f.backends[first+i]
		if weights > 0 {
			b.Due /= weights
		}
		if row.rates.Connections > 0 {
			b.Share = b.rates.Connections / row.rates.Connections
		}
	}
	if s.Proxy != nil {
		row.rates, row.Connections = h.rate(serviceID(s.Name)), s.Proxy.Connections
	}
	row.trend = h.trend(serviceID(s.Name), row.rates.Connections)
	f.total = f.total.add(row.rates)
	f.services = append(f.services, row)
}

// dueWeight is the weight by which a backend gets new flows now.
func dueWeight(b *ops.Backend) float64 {
	if b.State != lb.Up {
		return 0
	}
	weight := float64(b.Weight)
	if b.SlowStart != nil {
		weight *= float64(b.SlowStart.Percent) / 100
	}
	if b.Health != nil && b.Forced == nil {
		weight *= float64(min(b.Health.WeightPercent, 100)) / 100
	}
	return weight
}

// endpointText is a backend's address, with the port where it differs from the service's.
func endpointText(s *ops.Service, b *ops.Backend) string {
	if b.Port == s.Port {
		return b.Address.String()
	}
	return netip.AddrPortFrom(b.Address, b.Port).String()
}
