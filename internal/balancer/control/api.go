// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// Operate carries out the whole order, or nothing of it. It reaches the data plane before it returns. Errors:
// api.ErrNotFound, api.ErrRefused, api.ErrBadRequest, api.ErrStopping, the context's (then it may still be done), those
// of the data plane.
func (c *Controller) Operate(ctx context.Context, order ops.Order) (ops.Operation, error) {
	done, err := loop.Ask(ctx, c.loop, func() (ops.Operation, error) { return c.operator.operate(order) })
	if errors.Is(err, ErrStopped) {
		err = ops.ErrStopping
	}
	return done, err
}

// Drain takes this balancer out of every anycast, or brings it back; by names the caller. Errors: ops.ErrRefused,
// ops.ErrStopping, the context's.
func (c *Controller) Drain(ctx context.Context, drain bool, by string) (ops.Sharing, error) {
	come, err := loop.Ask(ctx, c.loop, func() (ops.Sharing, error) {
		err := c.routes.drain(drain, by)
		return ops.Sharing{BGP: c.routes.bgpStatus(c.view), VRRP: c.election.vrrpStatus(c.view)}, err
	})
	if errors.Is(err, ErrStopped) {
		err = ops.ErrStopping
	}
	return come, err
}

// Drained says whether the balancer is taken out of every anycast. It may be called from any goroutine.
func (c *Controller) Drained() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.routes.drained != nil
}

// flowLister is a DataPlane that shows which flows it remembers.
type flowLister interface {
	// Flows returns the wanted flows, limit of them at most, and how many there are.
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
		return ops.FlowList{}, fmt.Errorf("%w: a limit of %d flows; it can be 1 to %d", ops.ErrBadRequest, limit,
			ops.MaxFlows)
	}
	for _, state := range q.States {
		if !slices.Contains(lb.FlowStates, state) {
			return ops.FlowList{}, fmt.Errorf("%w: no flow is ever %q; the states are %v", ops.ErrBadRequest, state,
				lb.FlowStates)
		}
	}
	c.mu.Lock()
	v := c.view
	c.mu.Unlock()
	names, err := v.Owners(q.Of)
	if err != nil {
		return ops.FlowList{}, err
	}
	flows, matching, err := plane.Flows(func(f *lb.Flow) bool {
		_, meant := names[f.Backend]
		return meant && (!q.Client.IsValid() || q.Client.Contains(f.Client.Addr())) &&
			(len(q.States) == 0 || slices.Contains(q.States, f.State))
	}, limit)
	if err != nil {
		return ops.FlowList{}, fmt.Errorf("read the tables of flows: %w", err)
	}
	list := ops.FlowList{Flows: make([]ops.Flow, len(flows)), Matching: matching}
	for i, f := range flows {
		at := names[f.Backend]
		list.Flows[i] = ops.Flow{Service: at.Service, Backend: at.Backend, Client: f.Client, State: f.State,
			Proven: f.Proven, SilentSeconds: f.Silent.Seconds()}
		if f.Source.IsValid() {
			list.Flows[i].Source = &f.Source
		}
	}
	slices.SortFunc(list.Flows, func(a, b ops.Flow) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Backend, b.Backend), a.Client.Compare(b.Client))
	})
	return list, nil
}

// Check asks a backend of a service now, as its checks do, without consequence for its verdict.
// Errors: ops.ErrNotFound, ops.ErrRefused where nothing is asked of it, the context's.
func (c *Controller) Check(ctx context.Context, service, backend string) (ops.Checked, error) {
	c.mu.Lock()
	v := c.view
	c.mu.Unlock()
	targets, err := v.Targets(ops.Order{Service: service, Backend: backend})
	if err != nil {
		return ops.Checked{}, err
	}
	at := targets[0]
	s, b := v.Service(at), v.Backend(at)
	checked := ops.Checked{Target: view.TargetOf(s, b), Results: []ops.CheckResult{}, Steps: []ops.CheckStep{}}
	if !s.Checks.On() {
		return checked, fmt.Errorf("%w: the configuration has no check for %s; add one, such as check: tcp",
			ops.ErrRefused, s.Name)
	}
	checked.Checks, _ = view.ChecksStatus(s)
	o, e := v.OverlayOf(s, b), v.Known[v.At[at.I][at.J]]
	checked.State = view.Condition(s, v.Applied(at.I)[at.J], o, e).State
	results, err := c.opt.Checks.Ask(ctx, lb.CheckTarget{Backend: s.BackendKey(b), Mode: s.Mode,
		Checks: s.ResolvedChecks(),
		Any:    s.Checks.Any},
		func(step lb.CheckStep) { checked.Steps = append(checked.Steps, ops.StepOf(step)) })
	for _, r := range results {
		checked.Results = append(checked.Results, ops.ResultOf(r))
	}
	if err != nil {
		return checked, fmt.Errorf("check %s: %w", checked.Target, err)
	}
	return checked, nil
}

// Operations returns the changes that operations have made, and the operations that can be undone. It may be called
// from any goroutine, after Start.
func (c *Controller) Operations() (ops.Operations, error) {
	c.mu.Lock()
	v, history := c.view, c.operator.history
	c.mu.Unlock()
	counters, err := c.counting.counters(v)
	if err != nil {
		return ops.Operations{}, err
	}
	return operationsOf(v, history, counters.Counters), nil
}
