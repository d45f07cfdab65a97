// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
	"github.com/jeoul/jeoul/internal/host/neigh"
)

// Problems lists the services that have no backend for new flows, or do not use their primaries.
func (v *View) Problems() []string {
	var list []string
	for i, s := range v.State.Services {
		switch _, up := v.countEligible(i); {
		case v.Selected[i].Serving != Primaries:
			list = append(list, fmt.Sprintf("service %s: %s", s.Name, v.Selected[i].Text(s.Service)))
		case up > 0:
		case slices.ContainsFunc(s.Paths, func(p lb.Path) bool { return reached(s.Service, p) }):
			list = append(list, fmt.Sprintf("service %s has no backend that takes new flows: they are dropped", s.Name))
		default:
			list = append(list, fmt.Sprintf("service %s has no backend that can take packets: all to it are dropped",
				s.Name))
		}
	}
	return list
}

// ServiceStatus returns the status of service i, from the data plane's state (the view), the paths known now, and the
// counters.
func (v *View) ServiceStatus(i int, now map[netip.Addr]paths.Entry, counters lb.Counters) ops.Service {
	s := v.Config.Services[i]
	status := ops.Service{Name: s.Name, Owner: v.Config.Owner(i), VIP: s.VIP, Port: s.Port, Protocol: s.Protocol,
		Mode: s.Mode,
		DSCP: s.DSCP, MSS: s.MSS, Scheduler: s.Scheduler, Hash: lb.HashFlow, Tracked: s.Tracked()}
	if s.BySource() {
		status.Hash = lb.HashSource
	}
	if s.Persistence.On() {
		status.Persistence = &ops.Persistence{TimeoutSeconds: s.Persistence.Timeout.Seconds(),
			Prefix: s.Persistence.Prefix, Group: s.Persistence.Group}
	}
	if limits := s.Limits; limits.Rate > 0 || limits.Connections > 0 || limits.Refuse == lb.RefuseByReset {
		status.Limits = &ops.Limits{Rate: limits.Rate, Burst: limits.Burst, Connections: limits.Connections,
			Refuse: limits.Refuse}
		if s.Mode.Proxied() {
			status.Limits.Burst, status.Limits.Refuse = 0, "" // mode proxy has neither: excess connections wait
		}
	}
	status.TableSize = tableSize(s)
	count := counters.Services[s.Key()]
	status.Active, status.Flows = count.Active, count.Flows
	if count.TableDigest != 0 {
		status.TableDigest = fmt.Sprintf("%016x", count.TableDigest)
	}
	if t := count.Transition; t != nil {
		status.Transition = &ops.Transition{Since: t.Since, MovedSlots: t.MovedSlots, Slots: t.Slots, Base: t.Base}
		if t.Base {
			status.Transition.Until = t.Until
		}
	}
	status.Hairpin = v.hairpinStatus(i, count.Hairpins)
	applied := v.Applied(i)
	// A backend's status is large: growing the slice would copy it again and again, at each scrape.
	status.Backends = slices.Grow(status.Backends, len(applied))
	for j, b := range applied {
		entry := now[b.Address]
		status.Backends = append(status.Backends,
			v.backendStatus(Use{i, j}, b, &entry, counters.Backends[s.BackendKey(b.Backend)]))
	}
	return status
}

// HasBackendIn reports whether a backend of service i is in one of the states, as its status has it.
func (v *View) HasBackendIn(i int, states []lb.BackendState) bool {
	s := v.Config.Services[i]
	for j, b := range v.Applied(i) {
		condition := Condition(s, b, v.OverlayOf(s, s.Backends[j]), v.Known[v.At[i][j]])
		if slices.Contains(states, condition.State) {
			return true
		}
	}
	return false
}

// tableSize returns the number of slots of a service's hash table.
func tableSize(s lb.Service) uint32 {
	if s.Scheduler.InOrder() {
		return 1
	}
	return cmp.Or(s.TableSize, lb.DefaultTableSize(len(s.Backends)))
}

// backendStatus returns the status of a backend, which is b in the data plane.
func (v *View) backendStatus(at Use, b AppliedBackend, now *paths.Entry, count lb.BackendCount) ops.Backend {
	s, configured, e := v.Service(at), v.Backend(at), v.Known[v.At[at.I][at.J]]
	o := v.OverlayOf(s, configured)
	status := ops.Backend{
		Name: b.Name, Address: b.Address, Port: b.Port, Weight: b.Weight,
		State: Condition(s, b, o, e).State, Drain: o.Drain, Forced: o.Forced,
		Neighbour: neighbourState(now),
		Reason:    Condition(s, b, o, now).Reason,
		Interface: e.Interface, NextHop: nextHop(e), MAC: e.MAC.String(), MTU: e.MTU, Narrow: e.PMTUReported,
		Packets: count.Packets, Bytes: count.Bytes, Connections: count.Connections,
		ReturnedPackets: count.ReturnedPackets, ReturnedBytes: count.ReturnedBytes,
		Answered: count.Answered, Refused: count.Refused, Unreachable: count.Unreachable,
		Active: count.Active, Upper: b.Upper, Lower: b.Lower, Flows: count.Flows, Backup: b.Backup, Origin: b.Origin,
	}
	if b.Weight != configured.Weight {
		status.ConfiguredWeight = &configured.Weight
	}
	return status
}

// Absent lists the operations in force on absent backends, sorted by the backends' names.
func (v *View) Absent() (list []ops.Overlay) {
	for name, o := range v.Overlays {
		if o.Absent != nil {
			was := o.Absent.Was
			list = append(list,
				o.Status(ops.Target{Service: name.Service, Backend: name.Backend, Address: was.Address, Port: was.Port},
					ops.Left{}))
		}
	}
	slices.SortFunc(list, func(a, b ops.Overlay) int { return cmp.Compare(a.String(), b.String()) })
	return list
}

func neighbourState(e *paths.Entry) string {
	if e.Neighbour == "" {
		return neigh.Unknown
	}
	return e.Neighbour
}

// nextHop returns the router, or the backend itself; the zero Addr without a route.
func nextHop(e *paths.Entry) netip.Addr {
	if e.Interface == "" {
		return netip.Addr{}
	}
	return e.NextHop()
}

// FillProxied writes the proxy's settings and counters of a service into its status.
func FillProxied(s lb.Service, counts proxy.Stats, status *ops.Service) {
	if !s.Mode.Proxied() {
		return
	}
	n := counts.Services[s.Key()]
	status.TableSize = 0
	status.Proxy = &ops.ProxiedService{Speaks: cmp.Or(s.Proxy.Speaks, lb.SpeaksTCP), TLS: len(s.Proxy.Certificates) > 0,
		Connections: n.Connections, BytesIn: n.BytesIn, BytesOut: n.BytesOut, Denied: n.Denied, Proxied: proxiedOf(n)}
	for j := range status.Backends {
		b := &status.Backends[j]
		key := lb.BackendKey{Service: s.Key(), Address: b.Address, Port: b.Port}
		of := proxiedOf(counts.Backends[key])
		b.Proxied = &of
		// The kernel routes there, and the known path to the address belongs to another service.
		b.Neighbour, b.Interface, b.NextHop, b.MAC, b.MTU, b.Narrow = "", "", netip.Addr{}, "", 0, false
	}
}

func proxiedOf(n proxy.Counts) ops.Proxied {
	r := n.Responses
	return ops.Proxied{Requests: n.Requests, Failed: n.Failed, Retried: n.Retried, Redispatched: n.Redispatched,
		Queued: n.Queued,
		Responses: ops.Responses{Other: r[0], Informational: r[1], Successful: r[2], Redirection: r[3],
			ClientError: r[4], ServerError: r[5]}}
}
