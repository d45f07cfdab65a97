// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// flowLister is a DataPlane that shows which flows it remembers.
type flowLister interface {
	// Flows returns those that are wanted, as many as limit at most, and how many there are.
	Flows(wanted func(*lb.Flow) bool, limit int) (flows []lb.Flow, matching uint64, err error)
}

// Flows lists remembered flows, by service, backend and client. It does not wait for the loop. Errors: ops.ErrNotFound,
// ops.ErrBadRequest, those of the data plane.
func (c *Controller) Flows(q ops.FlowQuery) (ops.FlowList, error) {
	plane, ok := c.opt.DataPlane.(flowLister)
	if !ok {
		return ops.FlowList{}, errors.New("this data plane does not show its flows")
	}
	limit := cmp.Or(q.Limit, ops.DefaultFlows)
	if limit < 0 || limit > ops.MaxFlows {
		return ops.FlowList{}, fmt.Errorf("%w: a limit of %d flows; it can be 1 to %d", ops.ErrBadRequest, limit, ops.MaxFlows)
	}
	for _, state := range q.States {
		if !slices.Contains(lb.FlowStates, state) {
			return ops.FlowList{}, fmt.Errorf("%w: no flow is ever %q; the states are %v", ops.ErrBadRequest, state, lb.FlowStates)
		}
	}
	c.mu.Lock()
	v := c.view
	c.mu.Unlock()
	names, err := v.owners(q.Of)
	if err != nil {
		return ops.FlowList{}, err
	}
	flows, matching, err := plane.Flows(func(f *lb.Flow) bool {
		_, meant := names[f.Backend]
		return meant && (!q.Client.IsValid() || q.Client.Contains(f.Client.Addr())) && (len(q.States) == 0 || slices.Contains(q.States, f.State))
	}, limit)
	if err != nil {
		return ops.FlowList{}, fmt.Errorf("read the tables of flows: %w", err)
	}
	list := ops.FlowList{Flows: make([]ops.Flow, len(flows)), Matching: matching}
	for i, f := range flows {
		at := names[f.Backend]
		list.Flows[i] = ops.Flow{Service: at.Service, Backend: at.Backend, Client: f.Client, State: f.State, Proven: f.Proven, SilentSeconds: f.Silent.Seconds()}
		if f.Source.IsValid() {
			list.Flows[i].Source = &f.Source
		}
	}
	slices.SortFunc(list.Flows, func(a, b ops.Flow) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Backend, b.Backend), a.Client.Compare(b.Client))
	})
	return list, nil
}

// owners returns the backends that names of services and of backends mean, all of them where there is none.
func (v *view) owners(names []string) (map[lb.BackendKey]ops.Target, error) {
	met, owners := map[string]bool{}, map[lb.BackendKey]ops.Target{}
	for _, s := range v.cfg.Services {
		for _, b := range s.Backends {
			target := targetOf(s, b)
			met[s.Name], met[target.String()] = true, true
			if len(names) == 0 || slices.Contains(names, s.Name) || slices.Contains(names, target.String()) {
				owners[s.BackendKey(b)] = target
			}
		}
	}
	for _, name := range names {
		if !met[name] {
			return nil, fmt.Errorf("%w: there is no service or backend %s; %s", ops.ErrNotFound, name, near(name, slices.Sorted(maps.Keys(met))))
		}
	}
	return owners, nil
}
