// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
	"github.com/jeoul/jeoul/internal/host/neigh"
)

// Status returns the balancer as it is now. It may be called from any
// goroutine, after Start.
func (c *Controller) Status() (ops.Status, error) {
	attachments, entries := c.opt.DataPlane.Attachments(), c.opt.Paths.Entries()
	// The view does not change any more: no caller waits for us to be done.
	c.mu.Lock()
	v, links, missing, generation, history, spared, problems := c.view, c.links, c.missing, c.generation,
		c.operator.history, c.ejector.spared, c.problems()
	sets, refused := c.discovering.sets, c.discovering.refused
	c.mu.Unlock()
	counters, err := c.counting.counters(v)
	if err != nil {
		return ops.Status{}, err
	}
	lost := c.counting.xdpLost()
	for _, message := range lossMessages(attachments, lost) {
		if message != "" {
			problems = append(problems, message)
		}
	}
	status := ops.Status{
		Version:    c.opt.Version,
		PID:        os.Getpid(),
		Started:    c.started,
		Config:     v.cfg.File,
		Interface:  links[0].Name,
		Interfaces: interfaceStatus(v.cfg.Interfaces, links, missing, attachments, lost),
		Hook:       hookOf(attachments[0]), // one way for all interfaces
		TableSize:  v.cfg.TableSize,
		Generation: generation,
		Problems:   slices.Concat(problems, v.problems(), v.hairpinProblems()),
		Services:   []ops.Service{},
		Outcomes:   []ops.Outcome{},
		Operations: v.operations(history, counters.Counters),
		Proxy:      c.proxies.engineStatus(v),
	}
	for i := range v.cfg.Services {
		service := v.serviceStatus(i, entries, counters.Counters)
		showProxied(v.cfg.Services[i], counters.proxy, &service)
		c.pathLog.outages.date(&service)
		c.poolWatch.scarcity.show(v.layout, i, counters.Counters, &service)
		c.addHealth(v, i, spared, &service)
		service.Discovered = v.discovered(i, sets, refused, time.Now())
		status.Services = append(status.Services, service)
	}
	status.Problems = append(status.Problems, c.poolWatch.scarcity.problems(v.layout, counters.Counters)...)
	status.Problems = append(status.Problems, v.sparedProblems(spared)...)
	status.Problems = append(status.Problems, c.proxies.engineProblems(v)...)
	status.Problems = append(status.Problems, discoveryProblems(status.Services)...)
	if c.opt.ReplyHops != nil {
		status.Problems = append(status.Problems, c.opt.ReplyHops.Problems()...)
	}
	for _, o := range counters.Outcomes {
		status.Outcomes = append(status.Outcomes, ops.Outcome{Name: o.Name, Packets: o.Packets, Help: o.Help,
			Remedy: ops.RemedyOf(o.Name)})
	}
	status.Local = localStatus(counters.Local)
	if flows := counters.Flows; flows.ProvenLimit > 0 {
		status.Flows = &ops.Flows{Proven: flows.Proven, ProvenLimit: flows.ProvenLimit,
			Unproven: flows.Unproven, UnprovenLimit: flows.UnprovenLimit, Bytes: flows.Bytes}
		status.Problems = append(status.Problems, nearlyFull(*status.Flows)...)
	}
	c.storage.showStorage(&status)
	c.routes.showRoutes(v, &status)
	c.election.showElection(v, &status)
	if plane, ok := c.opt.DataPlane.(planner); ok {
		plan := plane.Memory()
		status.Memory = &ops.Memory{Total: plan.Total(), Proven: plan.Proven, Unproven: plan.Unproven,
			Returns:       plan.Returns,
			Configuration: plan.Configuration, Counters: plan.Counters, Ways: plan.Ways, Fragments: plan.Fragments,
			Checks: plan.Checks}
	}
	return status, nil
}

// localStatus says what became of this host's own sockets; nil where they are not served.
func localStatus(counts *lb.LocalCounts) *ops.Local {
	if counts == nil {
		return nil
	}
	status := &ops.Local{Cgroup: counts.Cgroup, Sockets: counts.Sockets, Warning: counts.Warning,
		Events: []ops.LocalEvent{}}
	for _, e := range counts.Events {
		status.Events = append(status.Events, ops.LocalEvent{Name: e.Name, Count: e.Count, Help: e.Help})
	}
	return status
}

// nearlyFull warns when nine tenths of a table of flows are taken.
func nearlyFull(f ops.Flows) (problems []string) {
	if f.Proven*10 >= f.ProvenLimit*9 {
		problems = append(problems,
			fmt.Sprintf("%d flows are remembered of at most %d, and new ones are not when the table is full: raise flows.limit",
				f.Proven, f.ProvenLimit))
	}
	if f.Unproven*10 >= f.UnprovenLimit*9 {
		problems = append(problems,
			fmt.Sprintf("%d unproven flows are remembered of at most %d, as in a SYN flood; new ones are not when the table is full: raise flows.unproven, or shorten flows.timeouts.opening",
				f.Unproven, f.UnprovenLimit))
	}
	return problems
}

func hookOf(a lb.Attachment) ops.Hook {
	return ops.Hook{Name: a.Hook, Generic: a.Generic, Driver: a.Driver, Reason: a.Reason, Warning: a.Warning}
}

// interfaceStatus puts together what is known of each interface, which the configuration calls
// by these names: while they change, the attachments may be those of before or after.
func interfaceStatus(names []string, links []iface.State, missing []string, attachments []lb.Attachment,
	lost []uint64) []ops.Interface {
	list := make([]ops.Interface, len(links))
	for i, link := range links {
		// One that is missing has the hook that the one to come will have.
		list[i] = ops.Interface{Name: link.Name, Up: link.Up && !slices.Contains(missing, link.Name),
			MAC:  link.MAC.String(),
			Hook: ops.Hook{Name: attachments[0].Hook}}
		at := slices.IndexFunc(attachments, func(a lb.Attachment) bool {
			return i < len(names) && a.Interface == names[i]
		})
		if at >= 0 {
			list[i].Hook = hookOf(attachments[at])
			if attachments[at].Hook == lb.HookXDP {
				list[i].XDPLost = lossOf(lost, i)
			}
		}
	}
	return list
}

// problems lists what is wrong now, but for the services; the caller holds the lock.
func (c *Controller) problems() []string {
	list := []string{}
	for _, link := range c.links {
		switch {
		case slices.Contains(c.missing, link.Name):
			list = append(list, goneMessage(link.Name))
		case !link.Up:
			list = append(list, downMessage(link.Name))
		}
	}
	if c.failed != nil {
		list = append(list, oneLine(c.failed))
	}
	if c.discovering.undiscovered != nil {
		list = append(list, oneLine(c.discovering.undiscovered))
	}
	if c.refused != nil {
		list = append(list, fmt.Sprintf("the reload of %s was refused, and nothing of it applied: %s",
			c.refusedAt.Format(time.DateTime), oneLine(c.refused)))
	}
	return list
}

// problems lists the services that have no backend for new flows.
func (v *view) problems() []string {
	var list []string
	for i, s := range v.state.Services {
		switch _, up := v.takers(i); {
		case v.selected[i].serving != primaries:
			list = append(list, fmt.Sprintf("service %s: %s", s.Name, v.selected[i].text(s.Service)))
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

// serviceStatus joins what the data plane has (the view), what is known now, and
// what was counted.
func (v *view) serviceStatus(i int, now map[netip.Addr]paths.Entry, counters lb.Counters) ops.Service {
	s := v.cfg.Services[i]
	status := ops.Service{Name: s.Name, Owner: v.cfg.Owner(i), VIP: s.VIP, Port: s.Port, Protocol: s.Protocol,
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
			status.Limits.Burst, status.Limits.Refuse = 0, "" // it has none: what is beyond waits
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
	for j, b := range v.applied(i) {
		entry := now[b.Address]
		status.Backends = append(status.Backends,
			v.backendStatus(use{i, j}, b, &entry, counters.Backends[s.BackendKey(b.Backend)]))
	}
	return status
}

// tableSize returns the number of slots of a service's hash table.
func tableSize(s lb.Service) uint32 {
	if s.Scheduler.InOrder() {
		return 1
	}
	return cmp.Or(s.TableSize, lb.DefaultTableSize(len(s.Backends)))
}

// backendStatus is of a backend that is b as the data plane has it.
func (v *view) backendStatus(at use, b appliedBackend, now *paths.Entry, count lb.BackendCount) ops.Backend {
	s, configured, e := v.service(at), v.backend(at), v.known[v.at[at.i][at.j]]
	o := v.overlayOf(s, configured)
	status := ops.Backend{
		Name: b.Name, Address: b.Address, Port: b.Port, Weight: b.Weight,
		State: condition(s, b, o, e).State, Drain: o.drain, Forced: o.forced,
		Neighbour: neighbourState(now),
		Reason:    condition(s, b, o, now).Reason,
		Interface: e.Interface, NextHop: nextHop(e), MAC: e.MAC.String(), MTU: e.MTU, Narrow: e.Told,
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

// operations lists what is in force, in the configuration's order, and what can be
// taken back.
func (v *view) operations(history []operation, counters lb.Counters) ops.Operations {
	list := ops.Operations{InForce: []ops.Overlay{}, History: []ops.Operation{}}
	for i, s := range v.cfg.Services {
		if v.laid[s.Name] == 0 {
			continue
		}
		for _, b := range v.cfg.Services[i].Backends {
			if o, laid := v.overlays[nameOf(s, b)]; laid {
				list.InForce = append(list.InForce, o.shown(targetOf(s, b), *leftOf(s, s.BackendKey(b), counters)))
			}
		}
	}
	list.InForce = append(list.InForce, v.absent()...)
	for _, op := range slices.Backward(history) {
		list.History = append(list.History, op.shown())
	}
	return list
}

// absent lists what is in force on backends that are absent, by their names.
func (v *view) absent() (list []ops.Overlay) {
	for name, o := range v.overlays {
		if o.absent != nil {
			was := o.absent.was
			list = append(list,
				o.shown(ops.Target{Service: name.service, Backend: name.backend, Address: was.Address, Port: was.Port},
					ops.Left{}))
		}
	}
	slices.SortFunc(list, func(a, b ops.Overlay) int { return cmp.Compare(a.String(), b.String()) })
	return list
}

// shown returns the overlay for others to read.
func (o overlay) shown(target ops.Target, left ops.Left) ops.Overlay {
	shown := ops.Overlay{Target: target, Drain: o.drain, Weight: o.weight, Forced: o.forced, Left: left}
	if o.absent != nil {
		shown.Absent = o.absent.since
	}
	return shown
}

// nextHop returns the router or the backend itself; invalid without a route.
func nextHop(e *paths.Entry) netip.Addr {
	if e.Interface == "" {
		return netip.Addr{}
	}
	return e.NextHop()
}

func neighbourState(e *paths.Entry) string {
	if e.Neighbour == "" {
		return neigh.Unknown
	}
	return e.Neighbour
}

// addHealth writes into the status of service i what the checks say of its backends, and what
// follows for them.
func (c *Controller) addHealth(v *view, i int, spared map[lb.BackendKey]string, status *ops.Service) {
	s := v.cfg.Services[i]
	status.Checks, status.Require = checksStatus(s)
	status.Serving = servingOf(v.selected[i])
	status.Withdrawn = v.withdrawn(s.VIP)
	v.showStarts(i, status)
	v.showOutliers(i, spared, status)
	if !s.Checks.On() {
		return
	}
	status.OnDown = s.Checks.OnDown
	for j, b := range s.Backends {
		shown := &status.Backends[j]
		shown.Health = healthOf(c.opt.Checks.Verdict(s.BackendKey(b)))
		if now := v.verdict(use{i, j}); shown.Since.IsZero() && shown.Reason != "" && now.state == lb.Failing {
			shown.Since = now.since
		}
	}
}
