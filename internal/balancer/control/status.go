// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// Status returns the present status of the balancer. It may be called from any goroutine, after Start.
func (c *Controller) Status() (ops.Status, error) {
	// Drivers may take a while to answer: all else is read after them, because rates are computed from the counters and
	// the time of the status.
	attachments := c.opt.DataPlane.Attachments()
	lost := c.counting.xdpLost(attachments)
	entries := c.opt.Paths.Entries()
	// A view is immutable: the lock need not be held while it is read.
	c.mu.Lock()
	v, links, missing, generation, history, problems := c.view, c.links, c.missing, c.generation,
		c.operator.history, c.problems()
	with := c.serviceInputs(entries)
	c.mu.Unlock()
	counters, err := c.counting.counters(v)
	if err != nil {
		return ops.Status{}, err
	}
	for _, message := range lossMessages(attachments, lost) {
		if message != "" {
			problems = append(problems, message)
		}
	}
	status := ops.Status{
		Version:    c.opt.Version,
		PID:        os.Getpid(),
		Started:    c.started,
		Config:     v.Config.File,
		Interface:  links[0].Name,
		Interfaces: interfaceStatus(v.Config.Interfaces, links, missing, attachments, lost),
		Hook:       hookOf(attachments[0]), // all interfaces have the same hook
		TableSize:  v.Config.TableSize,
		Generation: generation,
		Problems:   slices.Concat(problems, v.Problems(), v.HairpinProblems()),
		Services:   []ops.Service{},
		Outcomes:   []ops.Outcome{},
		Operations: operationsOf(v, history, counters.Counters),
		Proxy:      c.proxies.engineStatus(v),
	}
	for i := range v.Config.Services {
		status.Services = append(status.Services, c.serviceStatus(i, &with, counters))
	}
	status.Problems = append(status.Problems, c.poolWatch.scarcity.problems(v.Layout, counters.Counters)...)
	status.Problems = append(status.Problems, v.SparedProblems(with.spared)...)
	status.Problems = append(status.Problems, c.proxies.engineProblems(v)...)
	status.Problems = append(status.Problems, discoveryProblems(status.Services)...)
	if c.opt.ReplyHops != nil {
		status.Problems = append(status.Problems, c.opt.ReplyHops.Problems()...)
	}
	fillOutcomes(counters.Outcomes, &status)
	status.Local = localStatus(counters.Local)
	c.fillFlows(counters.Flows, &status)
	c.storage.fillStatus(&status)
	c.routes.fillStatus(v, &status)
	c.election.fillStatus(v, &status)
	return status, nil
}

// Services returns the present status of the services of these names, as in Status; unknown names are skipped, and the
// order is the configuration's. The cost is proportional to the number of names, not of all services. It may be called
// from any goroutine, after Start.
func (c *Controller) Services(names []string) ([]ops.Service, error) {
	entries := c.opt.Paths.Entries()
	c.mu.Lock()
	with := c.serviceInputs(entries)
	c.mu.Unlock()
	var wanted []int
	for _, name := range names {
		if i, ok := with.view.Named[name]; ok {
			wanted = append(wanted, i)
		}
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	counters, err := c.counting.countersOf(with.view, wanted)
	if err != nil {
		return nil, err
	}
	list := make([]ops.Service, 0, len(wanted))
	for _, i := range wanted {
		list = append(list, c.serviceStatus(i, &with, counters))
	}
	return list, nil
}

// ServicesIn returns the names of the services that have a backend in one of the states, in the configuration's order.
// It reads no counters. It may be called from any goroutine, after Start.
func (c *Controller) ServicesIn(states []lb.BackendState) (names []string) {
	c.mu.Lock()
	v := c.view
	c.mu.Unlock()
	for i := range v.Config.Services {
		if v.HasBackendIn(i, states) {
			names = append(names, v.Config.Services[i].Name)
		}
	}
	return names
}

// serviceInputs are the inputs of the status of services, besides the counters, as of one time.
type serviceInputs struct {
	view    *view.View
	entries map[netip.Addr]paths.Entry
	spared  map[lb.BackendKey]string
	sets    []lb.Discovered
	refused []config.RefusedBackend
}

// serviceInputs returns the present inputs; the caller holds the lock.
func (c *Controller) serviceInputs(entries map[netip.Addr]paths.Entry) serviceInputs {
	return serviceInputs{c.view, entries, c.ejector.spared, c.discovering.sets, c.discovering.refused}
}

// serviceStatus returns the status of service i.
func (c *Controller) serviceStatus(i int, with *serviceInputs, counters view.Counted) ops.Service {
	v := with.view
	service := v.ServiceStatus(i, with.entries, counters.Counters)
	view.FillProxied(v.Config.Services[i], counters.Proxy, &service)
	c.pathLog.outages.fillSince(&service)
	c.poolWatch.scarcity.fillStatus(v.Layout, i, counters.Counters, &service)
	c.fillHealth(v, i, with.spared, &service)
	service.Discovered = discoveredStatus(v, i, with.sets, with.refused, time.Now())
	return service
}

// fillOutcomes adds how many packets had each outcome.
func fillOutcomes(outcomes []lb.OutcomeCount, status *ops.Status) {
	for _, o := range outcomes {
		status.Outcomes = append(status.Outcomes, ops.Outcome{Name: o.Name, Packets: o.Packets, Help: o.Help,
			Remedy: ops.RemedyOf(o.Name)})
	}
}

// fillFlows adds the numbers of flows, and the memory of the data plane.
func (c *Controller) fillFlows(flows lb.FlowCounts, status *ops.Status) {
	if flows.ProvenLimit > 0 {
		status.Flows = &ops.Flows{Proven: flows.Proven, ProvenLimit: flows.ProvenLimit,
			Unproven: flows.Unproven, UnprovenLimit: flows.UnprovenLimit, Bytes: flows.Bytes}
		status.Problems = append(status.Problems, nearlyFull(*status.Flows)...)
	}
	if plane, ok := c.opt.DataPlane.(planner); ok {
		plan := plane.Memory()
		status.Memory = &ops.Memory{Total: plan.Total(), Proven: plan.Proven, Unproven: plan.Unproven,
			Returns:       plan.Returns,
			Configuration: plan.Configuration, Counters: plan.Counters, RouteCache: plan.RouteCache,
			Fragments: plan.Fragments,
			Checks:    plan.Checks}
	}
}

// localStatus returns the status of local sockets of this host; nil where they are not served.
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

// nearlyFull warns when nine tenths of a flow table are in use.
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

// interfaceStatus joins link state and attachment of each interface that the configuration names: during a change, the
// attachments may be those before or after it.
func interfaceStatus(names []string, links []iface.State, missing []string, attachments []lb.Attachment,
	lost []uint64) []ops.Interface {
	list := make([]ops.Interface, len(links))
	for i, link := range links {
		// A missing interface is shown with the hook that it will get when it is back.
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

// problems lists the present problems, except those of services; the caller holds the lock.
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
	if c.lastError != nil {
		list = append(list, loglines.OneLine(c.lastError))
	}
	if c.discovering.failure != nil {
		list = append(list, loglines.OneLine(c.discovering.failure))
	}
	if c.refused != nil {
		list = append(list, fmt.Sprintf("the reload of %s was refused, and nothing of it applied: %s",
			c.refusedAt.Format(time.DateTime), loglines.OneLine(c.refused)))
	}
	return list
}

// operationsOf lists the operations in force, in the configuration's order, and those that can be undone.
func operationsOf(v *view.View, history []operation, counters lb.Counters) ops.Operations {
	list := ops.Operations{InForce: []ops.Overlay{}, History: []ops.Operation{}}
	for i, s := range v.Config.Services {
		if v.OverlayCounts[s.Name] == 0 {
			continue
		}
		for _, b := range v.Config.Services[i].Backends {
			if o, exists := v.Overlays[view.NameOf(s, b)]; exists {
				list.InForce = append(list.InForce,
					o.Status(view.TargetOf(s, b), *remainingOf(s, s.BackendKey(b), counters)))
			}
		}
	}
	list.InForce = append(list.InForce, v.Absent()...)
	for _, op := range slices.Backward(history) {
		list.History = append(list.History, op.status())
	}
	return list
}

// fillHealth writes the results of the checks of service i, and their consequences, into its status.
func (c *Controller) fillHealth(v *view.View, i int, spared map[lb.BackendKey]string, status *ops.Service) {
	s := v.Config.Services[i]
	status.Checks, status.Require = view.ChecksStatus(s)
	status.Serving = view.ServingOf(v.Selected[i])
	status.Withdrawn = v.Withdrawn(s.VIP)
	v.FillSlowStarts(i, status)
	v.FillOutliers(i, spared, status)
	if !s.Checks.On() {
		return
	}
	status.OnDown = s.Checks.OnDown
	for j, b := range s.Backends {
		shown := &status.Backends[j]
		shown.Health = view.HealthOf(c.opt.Checks.Verdict(s.BackendKey(b)))
		if now := v.Verdict(view.Use{I: i, J: j}); shown.Since.IsZero() && shown.Reason != "" && now.State == lb.Failing {
			shown.Since = now.Since
		}
	}
}
