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

// Operate runs an order completely, or not at all. The change is in the data plane before Operate returns. Errors:
// api.ErrNotFound, api.ErrRefused, api.ErrBadRequest, api.ErrStopping, the context's (then it may still be done), the
// data plane's.
func (c *Controller) Operate(ctx context.Context, order ops.Order) (ops.Operation, error) {
	done, err := loop.CallAndWait(ctx, c.loop, func() (ops.Operation, error) { return c.operator.operate(order) })
	if errors.Is(err, ErrStopped) {
		err = ops.ErrStopping
	}
	return done, err
}

// Drain leaves the VIPs to the other balancers, or takes them back; by names the caller. Errors: ops.ErrRefused,
// ops.ErrStopping, the context's.
func (c *Controller) Drain(ctx context.Context, drain bool, by string) (ops.Sharing, error) {
	sharing, err := loop.CallAndWait(ctx, c.loop, func() (ops.Sharing, error) {
		err := c.routes.drain(drain, by)
		return ops.Sharing{BGP: c.routes.bgpStatus(c.view), VRRP: c.election.vrrpStatus(c.view)}, err
	})
	if errors.Is(err, ErrStopped) {
		err = ops.ErrStopping
	}
	return sharing, err
}

// Drained reports whether the balancer is drained. It may be called from any goroutine.
func (c *Controller) Drained() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.routes.drained != nil
}

// flowLister is a DataPlane that lists its flows.
type flowLister interface {
	// Flows returns the flows that match, at most limit of them, and the number of all that match.
	Flows(wanted func(*lb.Flow) bool, limit int) (flows []lb.Flow, matching uint64, err error)
}

// Flows lists flows, sorted by service, backend and client. It does not wait for the loop. Errors: ops.ErrNotFound,
// ops.ErrBadRequest, the data plane's.
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
		_, selected := names[f.Backend]
		return selected && (!q.Client.IsValid() || q.Client.Contains(f.Client.Addr())) &&
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

// Check runs the checks of a backend now, without effect on its verdict. Errors: ops.ErrNotFound, ops.ErrRefused where
// it has no checks, the context's.
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
	results, err := c.opt.Checks.CheckNow(ctx, lb.CheckTarget{Backend: s.BackendKey(b), Mode: s.Mode,
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

// Operations returns the operations in force, and those that can be undone. It may be called from any goroutine, after
// Start.
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
